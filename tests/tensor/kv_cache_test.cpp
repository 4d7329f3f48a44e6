#include "tensor/kv_cache.h"

#include <catch2/catch.hpp>
#include <cstring>

#include "tensor/prefix_index.h"
#include "tests/tensor/engine_fixture.h"

namespace motley {
namespace {

using namespace test;

TEST_CASE("growing moves nothing and keeps what is stored") {
  const TransformerConfig config = grouped_tied().resolved();
  KvCache cache(config, plain_profile("bf16"), 4, 50);
  std::vector<int32_t> pages;
  cache.extend(pages, 8);
  const auto row_bytes = static_cast<size_t>(config.kv_heads * config.head_dim * 2);
  void* const keys = cache.keys(1);
  void* const values = cache.values(1);
  std::memset(static_cast<std::byte*>(keys) + static_cast<size_t>(pages[1]) * 4 * row_bytes, 0x5a, 4 * row_bytes);
  cache.extend(pages, 160 * 50);
  CHECK(cache.pages_allocated() == 2000);
  CHECK(cache.exhausted());
  CHECK(cache.keys(1) == keys);
  CHECK(cache.values(1) == values);
  // The last page of the last pool is memory too; a copy takes the first positions of every layer.
  cache.copy(pages[1], pages.back(), 3);
  const auto* copied = static_cast<std::byte*>(keys) + static_cast<size_t>(pages.back()) * 4 * row_bytes;
  for (size_t i = 0; i < 4 * row_bytes; ++i) REQUIRE(copied[i] == std::byte(i < 3 * row_bytes ? 0x5a : 0));
  CHECK_THROWS_WITH(cache.take(), Catch::Contains("full") && Catch::Contains("2000 pages of 4"));
}

TEST_CASE("a page is free when its last holder gives it back") {
  KvCache cache(grouped_tied().resolved(), plain_profile("fp32"), 4, 2);
  const int32_t page = cache.take();
  cache.hold(page);
  CHECK(cache.holders(page) == 2);
  CHECK(cache.release(page) == 1);
  CHECK(cache.pages_in_use() == 1);
  CHECK(cache.release(page) == 0);
  CHECK(cache.pages_in_use() == 0);
  CHECK_THROWS_AS(cache.release(page), ContractError);
}

TEST_CASE("the index finds the longest beginning, and forgets what was unused for longest") {
  KvCache cache(grouped_tied().resolved(), plain_profile("fp32"), 2, 2);
  PrefixIndex index(cache, 3);
  const std::vector<int32_t> tokens{1, 2, 3, 4, 5};
  std::vector<int32_t> pages{index.take(), index.take(), index.take()};
  index.begin_step();
  auto* first = index.add(index.root(), std::span(tokens).first(2), pages[0]);
  auto* second = index.add(first, std::span(tokens).subspan(2, 2), pages[1]);
  CHECK(index.add(second, std::span(tokens).subspan(4, 1), pages[2]) != nullptr);
  CHECK(index.add(second, std::span(tokens).subspan(4, 1), pages[2]) == nullptr);  // known already

  std::vector<int32_t> found;
  PrefixIndex::Match match = index.find(tokens, found);
  CHECK(found == std::vector<int32_t>{pages[0], pages[1]});
  CHECK(match.partial_page == -1);  // the rows of this step are not computed yet
  index.release(found);
  index.begin_step();
  const std::vector<int32_t> other{1, 2, 3, 9, 9};
  match = index.find(other, found);
  CHECK(found == std::vector<int32_t>{pages[0]});
  CHECK(match.partial_page == pages[1]);
  CHECK(match.partial_positions == 1);
  found.push_back(match.partial_page);
  index.release(found);
  CHECK(index.find(std::vector<int32_t>{7}, found).partial_page == -1);
  CHECK(index.find({}, found).partial_page == -1);
  CHECK(found.empty());

  const std::vector<int32_t> kept = pages;
  index.release(pages);
  CHECK(index.unused_pages() == 3);
  pages = {index.take()};
  index.add(index.root(), std::span(other).last(2), pages[0]);
  index.release(pages);  // one more than may stay: the end of the chain goes
  CHECK(index.evicted_pages() == 1);
  CHECK_FALSE(index.knows(kept[2]));
  CHECK(index.knows(kept[1]));
  index.clear();
  CHECK(cache.pages_in_use() == 0);
}

TEST_CASE("a chain of pages as long as a context of 256K positions is taken apart without recursion") {
  TransformerConfig config = grouped_tied();
  config.layers = 1, config.kv_heads = 1, config.heads = 2, config.head_dim = 2, config.width = 4;
  config.max_positions = 1 << 18;
  KvCache cache(config.resolved(), plain_profile("bf16"), 1, 1);
  PrefixIndex index(cache, 1 << 18);
  std::vector<int32_t> pages;
  auto* node = index.root();
  for (int32_t p = 0; p < 1 << 18; ++p) {
    pages.push_back(index.take());
    node = index.add(node, std::span(&p, 1), pages.back());
  }
  index.release(pages);
  CHECK(index.unused_pages() == 1 << 18);
  index.clear();
  CHECK(cache.pages_in_use() == 0);
}

}  // namespace
}  // namespace motley
