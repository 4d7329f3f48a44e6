// Attention: neither a sequence of a packed pass nor a row of a step over the cache depends on its neighbours.
#include "kernels/attention.h"
#include "tests/kernels/property.h"

namespace motley::kernels {
namespace {

struct Heads {
  int64_t kv_heads, heads, head_dim;
  explicit Heads(Values& draw)
      : kv_heads(spread(draw, 1, 3)), heads(kv_heads * spread(draw, 1, 6)), head_dim(2 * spread(draw, 1, 40)) {}
};

template <class T>
struct Sequence {
  int64_t length;
  std::vector<T> q, k, v, dy;
  Sequence(Values& draw, const Heads& shape, int64_t length) : length(length) {
    const auto rows = [&](std::vector<T>& out, int64_t heads) {
      for (int64_t i = 0; i < length; ++i)
        for (const T x : random_row<T>(draw, heads * shape.head_dim)) out.push_back(x);
    };
    // Half of the sequences are ordinary throughout: a NaN of their own would hide one from a neighbour.
    if (chance(draw, 2)) {
      rows(q, shape.heads), rows(k, shape.kv_heads), rows(v, shape.kv_heads), rows(dy, shape.heads);
    } else {
      const auto seed = static_cast<uint64_t>(draw.below(1 << 30));
      q = values<T>(length * shape.heads * shape.head_dim, seed, 2.0);
      k = values<T>(length * shape.kv_heads * shape.head_dim, seed + 1, 2.0);
      v = values<T>(length * shape.kv_heads * shape.head_dim, seed + 2);
      dy = values<T>(length * shape.heads * shape.head_dim, seed + 3);
    }
  }
};

template <class T>
std::vector<Sequence<T>> random_sequences(Values& draw, const Heads& shape, int64_t count) {
  std::vector<Sequence<T>> all;
  for (int64_t s = 0; s < count; ++s) all.emplace_back(draw, shape, spread(draw, 1, chance(draw, 4) ? 300 : 70));
  return all;
}

/// The rows of a packed pass are whole sequences; the result is all that both passes write for one.
template <class T>
void check_packed(Values& draw) {
  const Heads shape(draw);
  const auto pool = random_sequences<T>(draw, shape, 5);
  check_rows(draw, 5, 6, [&](std::span<const int64_t> chosen) {
    std::vector<int32_t> starts{0};
    std::vector<T> q, k, v, dy;
    for (const int64_t s : chosen) {
      const Sequence<T>& one = pool[static_cast<size_t>(s)];
      starts.push_back(starts.back() + static_cast<int32_t>(one.length));
      q.insert(q.end(), one.q.begin(), one.q.end());
      k.insert(k.end(), one.k.begin(), one.k.end());
      v.insert(v.end(), one.v.begin(), one.v.end());
      dy.insert(dy.end(), one.dy.begin(), one.dy.end());
    }
    const auto sequences = static_cast<int64_t>(chosen.size());
    std::vector<T> y(q.size()), dq(q.size()), dk(k.size()), dv(v.size());
    std::vector<Compute<T>> lse(static_cast<size_t>(starts.back() * shape.heads));
    cpu::attention<T>({y.data(), lse.data(), q.data(), k.data(), v.data(), starts.data(), starts.back(), sequences,
                       shape.heads, shape.kv_heads, shape.head_dim, 0.3});
    cpu::attention_backward<T>({dq.data(), dk.data(), dv.data(), dy.data(), y.data(), lse.data(), q.data(), k.data(),
                                v.data(), starts.data(), starts.back(), sequences, shape.heads, shape.kv_heads,
                                shape.head_dim, 0.3});
    RowResults results(chosen.size());
    for (size_t s = 0; s < chosen.size(); ++s) {
      const auto take = [&](const auto& from, int64_t width) {
        for (int64_t i = starts[s] * width; i < starts[s + 1] * width; ++i)
          results[s].push_back(real(from[static_cast<size_t>(i)]));
      };
      take(y, shape.heads * shape.head_dim), take(lse, shape.heads), take(dq, shape.heads * shape.head_dim);
      take(dk, shape.kv_heads * shape.head_dim), take(dv, shape.kv_heads * shape.head_dim);
    }
    return results;
  });
}

/// Several sequences in one cache of scrambled pages, each with room to its last page full of NaN.
template <class T>
struct Cache {
  Heads shape;
  Format format;
  int64_t page_size;
  double scale = 0.25;
  std::vector<std::vector<int32_t>> tables;
  std::vector<uint8_t> keys, cached;

  Cache(Values& draw, const Heads& shape, Format format, const std::vector<Sequence<T>>& sequences)
      : shape(shape), format(format), page_size(spread(draw, 1, 64)) {
    std::vector<int32_t> pages;
    for (const auto& one : sequences)
      tables.emplace_back(static_cast<size_t>((one.length + page_size - 1) / page_size));
    for (const auto& table : tables)
      for (size_t i = 0; i < table.size(); ++i) pages.push_back(static_cast<int32_t>(pages.size()));
    for (size_t i = pages.size(); i > 1; --i)
      std::swap(pages[i - 1], pages[static_cast<size_t>(draw.below(static_cast<int64_t>(i)))]);
    for (auto& table : tables)
      for (int32_t& page : table) page = pages.back(), pages.pop_back();
    int64_t count = 0;
    for (const auto& table : tables) count += static_cast<int64_t>(table.size());
    keys.assign(static_cast<size_t>(count * page_size * shape.kv_heads * shape.head_dim * kv_bytes(format)), 0xff);
    cached = keys;
    for (size_t s = 0; s < sequences.size(); ++s) {
      write(keys, s, sequences[s].length, sequences[s].k);
      write(cached, s, sequences[s].length, sequences[s].v);
    }
  }
  void write(std::vector<uint8_t>& into, size_t s, int64_t length, const std::vector<T>& rows) const {
    const std::vector<const int32_t*> table(static_cast<size_t>(length), tables[s].data());
    std::vector<int32_t> positions;
    for (int64_t i = 0; i < length; ++i) positions.push_back(static_cast<int32_t>(i));
    cpu::cache_write<T>({into.data(), rows.data(), format, scale, table.data(), positions.data(), length,
                         shape.kv_heads, shape.head_dim, page_size});
  }
};

template <class T>
void check_paged(Values& draw) {
  const Heads shape(draw);
  const auto sequences = random_sequences<T>(draw, shape, 4);
  std::vector<Format> formats{Format::fp32, Format::bf16, Format::fp16, Format::e4m3, Format::e5m2};
  if (std::is_same_v<T, double>) formats.push_back(Format::fp64);
  const Cache<T> cache(draw, shape, pick(draw, formats), sequences);
  struct Place {
    size_t sequence;
    int64_t position;
  };
  std::vector<Place> pool;  // neighbours in the batch are often neighbours in a sequence, as in a prompt
  for (size_t s = 0; s < sequences.size(); ++s) {
    const int64_t first = draw.below(sequences[s].length), last = std::min(sequences[s].length, first + 20);
    for (int64_t p = first; p < last; ++p) pool.push_back({s, p});
  }
  const bool in_order = chance(draw, 2);
  const int64_t width = shape.heads * shape.head_dim;
  check_rows(draw, static_cast<int64_t>(pool.size()), 80, [&](std::span<const int64_t> chosen) {
    std::vector<size_t> order;
    for (size_t i = 0; i < chosen.size(); ++i) order.push_back(i);
    if (in_order)
      std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return chosen[a] < chosen[b]; });
    std::vector<T> q;
    std::vector<const int32_t*> tables;
    std::vector<int32_t> positions;
    int64_t longest = 0;
    for (const size_t i : order) {
      const Place& at = pool[static_cast<size_t>(chosen[i])];
      const auto from = sequences[at.sequence].q.begin() + at.position * width;
      q.insert(q.end(), from, from + width);
      tables.push_back(cache.tables[at.sequence].data());
      positions.push_back(static_cast<int32_t>(at.position));
      longest = std::max(longest, at.position + 1);
    }
    std::vector<T> y(q.size());
    cpu::paged_attention<T>({y.data(), q.data(), cache.keys.data(), cache.cached.data(), cache.format, cache.scale,
                             tables.data(), positions.data(), static_cast<int64_t>(chosen.size()), longest, shape.heads,
                             shape.kv_heads, shape.head_dim, cache.page_size, 0.3});
    RowResults results(chosen.size());
    for (size_t i = 0; i < order.size(); ++i)
      for (int64_t d = 0; d < width; ++d)
        results[order[i]].push_back(real(y[i * static_cast<size_t>(width) + static_cast<size_t>(d)]));
    return results;
  });
}

}  // namespace

TEST_CASE("a packed sequence never depends on its neighbours", "[property]") {
  for_random_cases(16, [](Values& draw) {
    const int64_t type = draw.below(4);
    if (type == 0) check_packed<float>(draw);
    if (type == 1) check_packed<bf16>(draw);
    if (type == 2) check_packed<fp16>(draw);
    if (type == 3) check_packed<double>(draw);
  });
}

TEST_CASE("a row of attention over the cache never depends on its neighbours", "[property]") {
  for_random_cases(24, [](Values& draw) {
    const int64_t type = draw.below(4);
    if (type == 0) check_paged<float>(draw);
    if (type == 1) check_paged<bf16>(draw);
    if (type == 2) check_paged<fp16>(draw);
    if (type == 3) check_paged<double>(draw);
  });
}

}  // namespace motley::kernels
