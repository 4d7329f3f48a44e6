#include "tensor/token_record.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

namespace motley {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

TokenRecords two_tokens() {
  TokenRecords r;
  r.tokens = {2, 0};
  r.log_q = {-0.5f, -1.0f};
  r.versions = {3, 4};
  r.offsets = {0, 2, 3};
  r.ids = {1, 2, 0};
  r.id_log_q = {-0.9f, -0.5f, -1.0f};
  r.log_tail = {kNothing, -0.4f};
  return r;
}

TEST_CASE("records append with shifted offsets", "[token_record]") {
  TokenRecords all;
  all.append(TokenRecords{});
  CHECK(all == TokenRecords{});
  all.append(two_tokens());
  CHECK(all == two_tokens());
  TokenRecords bare;
  bare.tokens = {1};
  bare.log_q = {-2.0f};
  bare.versions = {5};
  bare.offsets = {0, 0};
  bare.log_tail = {0.0f};
  all.append(bare);
  all.append(two_tokens());
  CHECK(all.size() == 5);
  CHECK(all.offsets == std::vector<int64_t>{0, 2, 3, 3, 5, 6});
  CHECK(all.ids == std::vector<int32_t>{1, 2, 0, 1, 2, 0});
  CHECK(all.versions == std::vector<uint64_t>{3, 4, 5, 3, 4});
  CHECK(all.consistent(3));
}

TEST_CASE("records from outside are checked", "[token_record]") {
  CHECK(TokenRecords{}.consistent(1));
  CHECK(two_tokens().consistent(3));
  CHECK_FALSE(two_tokens().consistent(2));  // id 2 is outside
  const auto broken = [](auto change) {
    TokenRecords r = two_tokens();
    change(r);
    return !r.consistent(3);
  };
  CHECK(broken([](TokenRecords& r) { r.tokens[0] = -1; }));
  CHECK(broken([](TokenRecords& r) { r.tokens[0] = 3; }));
  CHECK(broken([](TokenRecords& r) { r.log_q.pop_back(); }));
  CHECK(broken([](TokenRecords& r) { r.versions.push_back(1); }));
  CHECK(broken([](TokenRecords& r) { r.log_tail.clear(); }));
  CHECK(broken([](TokenRecords& r) { r.offsets.clear(); }));
  CHECK(broken([](TokenRecords& r) { r.offsets = {1, 2, 3}; }));
  CHECK(broken([](TokenRecords& r) { r.offsets = {0, 3, 2}; }));
  CHECK(broken([](TokenRecords& r) { r.offsets = {0, -1, 3}; }));
  CHECK(broken([](TokenRecords& r) { r.offsets = {0, 1000000, 3}; }));
  CHECK(broken([](TokenRecords& r) { r.offsets = {0, 2, 4}; }));
  CHECK(broken([](TokenRecords& r) { r.offsets = {0, 2, 2}; }));
  CHECK(broken([](TokenRecords& r) { r.ids = {2, 1, 0}; }));
  CHECK(broken([](TokenRecords& r) { r.ids = {2, 2, 0}; }));
  CHECK(broken([](TokenRecords& r) { r.ids = {-1, 2, 0}; }));
  CHECK(broken([](TokenRecords& r) { r.id_log_q.pop_back(); }));
}

}  // namespace
}  // namespace motley
