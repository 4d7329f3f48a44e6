#include <algorithm>

#include "kernels/attention.h"
#include "kernels/cpu/attention_packed.h"
#include "kernels/cpu/instantiate.h"
#include "kernels/cpu/kv_decode.h"
#include "kernels/kv_format.h"
#include "kernels/parallel.h"

namespace motley::kernels::cpu {
namespace {

/// Keys or values of one sequence in the cache, decoded as they are read.
template <Format F, class T>
struct PagedKeyRows final : KeyRows<Compute<T>> {
  using Code = typename KvCode<F>::type;

  PagedKeyRows(const void* cache, const int32_t* pages, const PagedAttentionArgs<T>& args)
      : cache(static_cast<const Code*>(cache)), pages(pages), args(args) {}
  void load(int64_t kv_head, int64_t first, int64_t count, Compute<T>* out, int64_t stride,
            Ahead& ahead) const override {
    const int64_t lines = ahead.lines_of(4 * kKeyTile / kRun);
    for_each_run(kv_head, first, count, [&](const Code* codes, int64_t i, int64_t rows) {
      ahead.ask(lines);
      decode(codes, rows, out + i * stride, stride);
    });
  }
  void announce(int64_t kv_head, int64_t first, int64_t count, Ahead& ahead) const override {
    ahead.set_bytes(args.head_dim * static_cast<int64_t>(sizeof(Code)));
    for_each_run(kv_head, first, count, [&](const Code* codes, int64_t, int64_t rows) {
      for (int64_t i = 0; i < rows; ++i) ahead.add(codes + i * args.kv_heads * args.head_dim);
    });
  }

 private:
  static constexpr int64_t kRun = 16;  // positions decoded between two questions for what comes next
  /// Calls body(codes, i, rows) for the runs of positions first + i on that lie in one page.
  template <class Body>
  void for_each_run(int64_t kv_head, int64_t first, int64_t count, Body body) const {
    for (int64_t i = 0, next; i < count; i = next) {
      const int64_t offset = (first + i) % args.page_size;
      next = std::min({count, i + args.page_size - offset, i + kRun});
      const int64_t place = pages[(first + i) / args.page_size] * args.page_size + offset;
      body(cache + (place * args.kv_heads + kv_head) * args.head_dim, i, next - i);
    }
  }
  void decode(const Code* codes, int64_t rows, Compute<T>* out, int64_t stride) const {
    const int64_t code_stride = args.kv_heads * args.head_dim;
    const auto scale = static_cast<Compute<T>>(args.kv_scale);
    if constexpr (!std::is_same_v<T, double> && F != Format::fp64) {
      decode_kv_rows({codes, F, dtype_of<T>(), scale, rows, args.head_dim, code_stride, out, stride});
    } else {
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t d = 0; d < args.head_dim; ++d)
          out[i * stride + d] = cpu::load(decode_kv<F, T>(codes[i * code_stride + d], scale));
    }
  }

  const Code* cache;
  const int32_t* pages;
  const PagedAttentionArgs<T>& args;
};

/// Rows [begin, end) of one sequence, and the heads of keys [first_head, first_head + heads): one thread's work.
struct PagedItem {
  int64_t begin, end, first_head, heads;
};

template <Format F, class T>
class PagedRows {
  using C = Compute<T>;

 public:
  PagedRows(const PagedAttentionArgs<T>& args, const PagedItem& item)
      : args_(args),
        item_(item),
        group_(args.heads / args.kv_heads),
        rows_((item.end - item.begin) * group_),
        padded_rows_(rounded_up(rows_, kRowTile)),
        block_({padded_rows_, item.heads, args.head_dim}, static_cast<C>(args.scale)) {
    for (int64_t h = 0; h < item.heads; ++h) {
      for (int64_t r = 0; r < rows_; r += kRowTile)
        block_.set_rows(h, r, std::min(kRowTile, rows_ - r),
                        [&](int64_t i) { return args.q + place(h, i) * args.head_dim; });
      for (int64_t r = 0; r < rows_; ++r) block_.set_limit(h, r, args.positions[item.begin + r / group_] + 1);
    }
  }
  void attend(int64_t begin, int64_t end) {
    const int32_t* pages = args_.page_table[item_.begin];
    block_.attend(PagedKeyRows<F, T>(args_.keys, pages, args_), PagedKeyRows<F, T>(args_.values, pages, args_),
                  item_.first_head, begin, end);
  }
  void store_rows() {
    for (int64_t h = 0; h < item_.heads; ++h)
      for (int64_t r = 0; r < rows_; ++r)
        store(args_.y + place(h, r) * args_.head_dim, block_.finish(h * padded_rows_ + r), args_.head_dim);
  }
  /// What attend has gathered, as [rows][2 + head_dim]: largest, sum, weighted sum.
  void save(C* out) const {
    for (int64_t r = 0; r < padded_rows_ * item_.heads; ++r, out += 2 + args_.head_dim) {
      const AttendState<C>& state = block_.total();
      out[0] = state.largest[r];
      out[1] = state.sums[r];
      std::copy_n(state.out + r * rounded_up(args_.head_dim, kKeyPanel), args_.head_dim, out + 2);
    }
  }
  void restore(const C* in) {
    for (int64_t r = 0; r < padded_rows_ * item_.heads; ++r, in += 2 + args_.head_dim) {
      AttendState<C>& state = block_.total();
      state.largest[r] = in[0];
      state.sums[r] = in[1];
      std::copy_n(in + 2, args_.head_dim, state.out + r * rounded_up(args_.head_dim, kKeyPanel));
    }
  }
  /// Adds what another saved for the block of positions from `first` on.
  void add(const C* in, int64_t first) {
    for (int64_t r = 0; r < padded_rows_ * item_.heads; ++r, in += 2 + args_.head_dim)
      if (block_.limit(r) > first) block_.add(r, in[0], in[1], in + 2);
  }
  int64_t saved_elements() const { return padded_rows_ * item_.heads * (2 + args_.head_dim); }

 private:
  /// Where row r of head h of keys has its q and y, in units of head_dim.
  int64_t place(int64_t h, int64_t r) const {
    return (item_.begin + r / group_) * args_.heads + (item_.first_head + h) * group_ + r % group_;
  }

  const PagedAttentionArgs<T>& args_;
  PagedItem item_;
  int64_t group_, rows_, padded_rows_;
  RowBlock<C> block_;
};

/// The positions that rows [begin, end) attend to.
template <class T>
int64_t key_count(const PagedAttentionArgs<T>& args, int64_t begin, int64_t end) {
  return *std::max_element(args.positions + begin, args.positions + end) + 1;
}

/// Threads share the blocks of positions of one item, whose sums are then combined in order.
template <Format F, class T>
void attend_split(const PagedAttentionArgs<T>& args, const PagedItem& item) {
  using C = Compute<T>;
  const int64_t count = key_count(args, item.begin, item.end);
  const int64_t blocks = (count + kPositionBlock - 1) / kPositionBlock;
  const int64_t rows = rounded_up((item.end - item.begin) * args.heads / args.kv_heads, kRowTile) * item.heads;
  const int64_t size = rows * (2 + args.head_dim);
  C* saved = scratch<struct SavedBlocks, C>(blocks * size);
  parallel_for(blocks, 1, [&](int64_t first, int64_t last) {
    PagedRows<F, T> rows_of_item(args, item);
    for (int64_t b = first; b < last; ++b) {
      rows_of_item.attend(b * kPositionBlock, std::min(count, (b + 1) * kPositionBlock));
      rows_of_item.save(saved + b * size);
    }
  });
  PagedRows<F, T> total(args, item);
  total.restore(saved);
  for (int64_t b = 1; b < blocks; ++b) total.add(saved + b * size, b * kPositionBlock);
  total.store_rows();
}

/// Rows of a step cut into items: neighbours of one sequence, at most kQueryRows query rows.
template <class T>
int64_t cut_items(const PagedAttentionArgs<T>& args, int64_t* starts) {
  const int64_t step = block_positions(args.heads / args.kv_heads);
  int64_t count = 0;
  for (int64_t r = 0; r < args.rows; ++r)
    if (r == 0 || args.page_table[r] != args.page_table[r - 1] || r - starts[count - 1] == step) starts[count++] = r;
  starts[count] = args.rows;
  return count;
}

}  // namespace

template <class T>
void paged_attention(const PagedAttentionArgs<T>& args) {
  if (args.rows == 0) return;
  int64_t* starts = scratch<struct PagedItems, int64_t>(args.rows + 1);
  const int64_t cuts = cut_items(args, starts);
  int64_t keys = 0, longest = 0;
  for (int64_t r = 0; r < args.rows; ++r) {
    keys += args.positions[r] + 1;
    longest = std::max<int64_t>(longest, args.positions[r] + 1);
  }
  // Few rows read the cache once, position after position; many rows reuse the tile of one head.
  const int64_t group = args.heads / args.kv_heads, threads = compute_threads();
  const bool split = cuts < 2 * threads && threads > 1 && longest > 2 * kPositionBlock;
  const bool together = args.rows * group <= cuts * kRowTile && (split || cuts >= threads);
  const int64_t heads = together ? args.kv_heads : 1, per_cut = args.kv_heads / heads;
  const int64_t items = cuts * per_cut, work = 1 + keys * args.heads * args.head_dim / items;
  const auto item_at = [&](int64_t i) {
    const int64_t* rows = starts + i / per_cut;
    return PagedItem{rows[0], rows[1], i % per_cut * heads, heads};
  };
  visit_kv_format(args.kv_format, [&]<Format F>(std::integral_constant<Format, F>) {
    if (split) {
      for (int64_t i = 0; i < items; ++i) attend_split<F>(args, item_at(i));
      return;
    }
    parallel_for(items, 1 + kPieceElements / work, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const PagedItem item = item_at(i);
        PagedRows<F, T> rows(args, item);
        rows.attend(0, key_count(args, item.begin, item.end));
        rows.store_rows();
      }
    });
  });
}

template <class T>
void cache_write(const CacheWriteArgs<T>& args) {
  const int64_t row = args.kv_heads * args.head_dim;
  const Compute<T> scale = static_cast<Compute<T>>(args.kv_scale);
  visit_kv_format(args.kv_format, [&]<Format F>(std::integral_constant<Format, F>) {
    for (int64_t r = 0; r < args.rows; ++r) {
      const int64_t position = args.positions[r];
      const int64_t page = args.page_table[r][position / args.page_size];
      const int64_t place = page * args.page_size + position % args.page_size;
      auto* out = static_cast<typename KvCode<F>::type*>(args.cache) + place * row;
      for (int64_t i = 0; i < row; ++i) out[i] = encode_kv<F>(args.rows_in[r * row + i], scale);
    }
  });
}

#define MOTLEY_INSTANTIATE(T)                                     \
  template void paged_attention<T>(const PagedAttentionArgs<T>&); \
  template void cache_write<T>(const CacheWriteArgs<T>&);
MOTLEY_FOR_EACH_TYPE(MOTLEY_INSTANTIATE)

}  // namespace motley::kernels::cpu
