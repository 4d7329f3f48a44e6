#include "kernels/philox.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <set>

using namespace motley::kernels;

namespace {
using Words = std::array<uint32_t, 4>;

// Known answers of Random123 (kat_vectors, philox4x32 with 10 rounds).
static_assert(philox({0, 0, 0, 0}, {0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
static_assert(philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}) == Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
static_assert(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
              Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}  // namespace

TEST_CASE("philox: known answers at run time", "[philox]") {
  CHECK(philox({0, 0, 0, 0}, {0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}) == Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
}

TEST_CASE("philox: every part of a key changes the draw", "[philox]") {
  const RandomKey base{7, Purpose::train, 11, 0};
  std::set<Words> seen{random_words(base, 0), random_words(base, 1)};
  RandomKey key = base;
  key.seed = 8;
  seen.insert(random_words(key, 0));
  key = base;
  key.purpose = Purpose::eval;
  seen.insert(random_words(key, 0));
  for (const uint64_t session : {uint64_t{12}, uint64_t{11} | uint64_t{1} << 40}) {
    key = base;
    key.session = session;
    seen.insert(random_words(key, 0));
  }
  key = base;
  key.attempt = 1;
  seen.insert(random_words(key, 0));
  CHECK(seen.size() == 7);
  CHECK(random_words(base, 5) == random_words(base, 5));
}

TEST_CASE("philox: uniform and normal moments", "[philox]") {
  RandomStream stream({1, Purpose::data, 2, 0}), twin({1, Purpose::data, 2, 0});
  constexpr int n = 100000;
  double uniform = 0, mean = 0, square = 0, fourth = 0;
  int largest = 0;
  for (int i = 0; i < n; ++i) {
    const double u = stream.uniform();
    REQUIRE(u > 0.0);
    REQUIRE(u < 1.0);
    REQUIRE(u == twin.uniform());
    uniform += u / n;
    const double z = stream.normal();
    REQUIRE(z == twin.normal());
    mean += z / n;
    square += z * z / n;
    fourth += z * z * z * z / n;
    largest = std::max(largest, static_cast<int>(stream.below(10)));
    twin.below(10);
  }
  // Five standard errors: sd/sqrt(n) with sd 0.289 (uniform), 1, sqrt(2), sqrt(96).
  CHECK(std::fabs(uniform - 0.5) < 5 * 0.289 / std::sqrt(n));
  CHECK(std::fabs(mean) < 5 / std::sqrt(n));
  CHECK(std::fabs(square - 1) < 5 * std::sqrt(2.0 / n));
  CHECK(std::fabs(fourth - 3) < 5 * std::sqrt(96.0 / n));
  CHECK(largest == 9);
}
