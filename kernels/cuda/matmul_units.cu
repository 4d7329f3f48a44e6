// Products on matrix units (mma.sync) with a fixed order of reduction: an output is one chain of mma steps of 16
// products with k ascending, cut where a k_tile ends. Neither the tiling nor the place of a row in its batch enters:
// matrix units treat all their rows and columns alike.
#include <stdexcept>

#include "kernels/cuda/product.h"
#include "kernels/cuda/unit_tiles.h"
#include "kernels/matmul.h"

namespace motley::kernels::GPU_NAMESPACE {
namespace {

constexpr int kStep = 16;  // products of one mma

/// A block's tile of C, and its cut into warps. Operand tiles are kDepth deep, kStages of them under way or in use.
template <int Rows, int Cols, int Depth, int Stages, int WarpsDown, int WarpsAcross>
struct Tiling {
  static constexpr int kRows = Rows, kCols = Cols, kDepth = Depth, kStages = Stages;
  static constexpr int kThreads = kWarp * WarpsDown * WarpsAcross, kAcross = WarpsAcross;
  static constexpr int kWarpRows = Rows / WarpsDown, kWarpCols = Cols / WarpsAcross;
  static constexpr int kM = kWarpRows / 16, kN = kWarpCols / 8;  // fragments of a warp
  static constexpr int kStageBytes = UnitTile<Rows, Depth>::kBytes + UnitTile<Cols, Depth>::kBytes;
  static constexpr int64_t kShared = int64_t{kStageBytes} * Stages;
  static constexpr int kSumStride = Cols + 8;  // of a tile of sums, so that a warp's stores spread over banks
  static_assert(kM * 16 * WarpsDown == Rows && kN * 8 * WarpsAcross == Cols && kN % 2 == 0 && kShared <= kSharedBytes &&
                Rows * kSumStride * 4 <= kShared);
};
// Few rows read the weights once, with many small blocks and much under way; the others are ever larger.
using FewRows = Tiling<16, 32, 128, 4, 1, 2>;
using Medium = Tiling<64, 64, 64, 3, 2, 2>;
using Wide = Tiling<128, 128, 64, 3, 2, 4>;

struct Job {
  Product product;
  UnitOperand a, b;
};

template <class Tiling>
struct Sums {
  float at[Tiling::kM][Tiling::kN][4];
};

/// Calls body(i, j, e, row, col) for every output of a thread: place e of fragment (i, j), in the warp's part of C.
template <class Tiling, class Body>
GPU_DEVICE void for_each_sum(const Body& body) {
  const int lane = thread() % kWarp;
  GPU_UNROLL
  for (int i = 0; i < Tiling::kM; ++i) {
    GPU_UNROLL
    for (int j = 0; j < Tiling::kN; ++j) {
      GPU_UNROLL
      for (int e = 0; e < 4; ++e) body(i, j, e, 16 * i + lane / 4 + e / 2 * 8, 8 * j + lane % 4 * 2 + e % 2);
    }
  }
}

/// Where a warp's part of C lies: in its block's tile, and in C.
struct Place {
  int warp_row, warp_col;
  int64_t row, col;
};

/// total continued with the sums of a k_tile that ends before column `end`: add_partial of kernels/cuda/product.h, with
/// the scales of a row or a column read once.
template <class Tiling>
GPU_DEVICE void add_partials(Sums<Tiling>& total, const Sums<Tiling>& sums, const Job& job, const Place& at,
                             int64_t end) {
  const MatmulArgs& args = job.product.args;
  if (args.a_scales == nullptr) {
    for_each_sum<Tiling>([&](int i, int j, int e, int, int) { total.at[i][j][e] += sums.at[i][j][e]; });
    return;
  }
  const int lane = thread() % kWarp;
  const int64_t blocks = pieces(job.a.depth, 128), index = (end - 1) / 128;
  float a_scale[Tiling::kM][2], b_scale[Tiling::kN][2];
  GPU_UNROLL
  for (int i = 0; i < 2 * Tiling::kM; ++i) {
    const int64_t row = at.row + 8 * i + lane / 4;
    a_scale[i / 2][i % 2] = row < job.a.rows ? args.a_scales[row * blocks + index] : 0.0f;
  }
  GPU_UNROLL
  for (int j = 0; j < 2 * Tiling::kN; ++j) {
    const int64_t col = at.col + j / 2 * 8 + lane % 4 * 2 + j % 2;
    b_scale[j / 2][j % 2] = col < job.b.rows ? args.b_scales[col / args.b_scale_rows * blocks + index] : 0.0f;
  }
  for_each_sum<Tiling>([&](int i, int j, int e, int, int) {
    total.at[i][j][e] = std::fma(sums.at[i][j][e], a_scale[i][e / 2] * b_scale[j][e % 2], total.at[i][j][e]);
  });
}

/// sums = what the block's tile of C holds, by way of shared memory.
template <class Tiling>
GPU_DEVICE void start_sums(Sums<Tiling>& sums, const Job& job, const Place& at, float* tile) {
  const int64_t row = at.row - at.warp_row, col = at.col - at.warp_col;
  for (int i = thread(); i < Tiling::kRows * Tiling::kCols; i += threads()) {
    const int r = i / Tiling::kCols, c = i % Tiling::kCols;
    const bool inside = row + r < job.a.rows && col + c < job.b.rows;
    tile[r * Tiling::kSumStride + c] = inside ? initial_sum<float>(job.product.args, row + r, col + c) : 0.0f;
  }
  barrier();
  for_each_sum<Tiling>([&](int i, int j, int e, int r, int c) {
    sums.at[i][j][e] = tile[(at.warp_row + r) * Tiling::kSumStride + at.warp_col + c];
  });
  barrier();
}
/// Finishes and stores the block's tile of C, by way of shared memory, so that neighbours are stored together.
template <class Tiling>
GPU_DEVICE void finish_sums(const Sums<Tiling>& sums, const Job& job, const Place& at, float* tile) {
  const int64_t row = at.row - at.warp_row, col = at.col - at.warp_col;
  barrier();
  for_each_sum<Tiling>([&](int i, int j, int e, int r, int c) {
    tile[(at.warp_row + r) * Tiling::kSumStride + at.warp_col + c] = sums.at[i][j][e];
  });
  barrier();
  for (int i = thread(); i < Tiling::kRows * Tiling::kCols; i += threads()) {
    const int r = i / Tiling::kCols, c = i % Tiling::kCols;
    if (row + r < job.a.rows && col + c < job.b.rows)
      finish(job.product, row + r, col + c, tile[r * Tiling::kSumStride + c]);
  }
}

template <Operand O, Format F, Scaling S, class Tile, int N>
GPU_DEVICE void decode_all(uint32_t (&b)[N][2], const unsigned char* tile, int col, int k) {
  GPU_UNROLL
  for (int j = 0; j < N; ++j) decode_b<O, F, S, Tile>(b[j], tile, col + 8 * j, k);
}

/// The products of kStep columns from k on, of a stage's tiles. row, col: of the warp in the block's tile.
template <class T, class Tiling>
GPU_DEVICE void multiply_step(Sums<Tiling>& sums, const Job& job, const unsigned char* a_tile,
                              const unsigned char* b_tile, int row, int col, int k) {
  constexpr Operand kOperand = std::is_same_v<T, bf16> ? Operand::bf16 : Operand::fp16;
  using ATile = UnitTile<Tiling::kRows, Tiling::kDepth>;
  using BTile = UnitTile<Tiling::kCols, Tiling::kDepth>;
  uint32_t b[Tiling::kN][2];
  if (job.b.source == Source::codes) {
    visit_packed_form(job.b.packed, [&]<Format F, Scaling S>() {
      if constexpr (F == Format::e4m3 || F == Format::e5m2 || F == Format::e2m1)
        decode_all<kOperand, F, S, BTile>(b, b_tile, col, k);
    });
  } else {
    const bool flat = job.b.source == Source::flat || job.b.source == Source::panels;
    GPU_UNROLL
    for (int j = 0; j < Tiling::kN; j += 2) {
      uint32_t both[4];
      load_b<BTile>(both, b_tile, flat, col + 8 * j, k);
      GPU_UNROLL
      for (int i = 0; i < 4; ++i) b[j + i / 2][i % 2] = both[i];
    }
  }
  GPU_UNROLL
  for (int i = 0; i < Tiling::kM; ++i) {
    uint32_t a[4];
    load_a<ATile>(a, a_tile, job.a.source == Source::flat, row + 16 * i, k);
    GPU_UNROLL
    for (int j = 0; j < Tiling::kN; ++j) multiply_fragments<kOperand>(sums.at[i][j], a, b[j]);
  }
}

/// Cut: k_tile is not 0.
template <class T, class Tiling, bool Cut>
GPU_BOUNDED_KERNEL(Tiling::kThreads, 1)
void unit_product_kernel(Job job) {
  GPU_DYNAMIC_SHARED(memory);
  constexpr int kDepth = Tiling::kDepth, kStages = Tiling::kStages;
  constexpr int kATileBytes = UnitTile<Tiling::kRows, kDepth>::kBytes;
  const MatmulArgs& args = job.product.args;
  const int64_t across = pieces(job.b.rows, Tiling::kCols), depth = job.a.depth, tiles = pieces(depth, kDepth);
  const int64_t row = block() / across * Tiling::kRows, col = block() % across * Tiling::kCols;
  const int warp = thread() / kWarp, down = warp / Tiling::kAcross, right = warp % Tiling::kAcross;
  const Place at{down * Tiling::kWarpRows, right * Tiling::kWarpCols, row + down * Tiling::kWarpRows,
                 col + right * Tiling::kWarpCols};
  const bool idle = at.row >= job.a.rows || at.col >= job.b.rows;
  float* const sum_tile = reinterpret_cast<float*>(memory);
  Sums<Tiling> sums{}, total{};
  if (args.accumulate) start_sums(Cut ? total : sums, job, at, sum_tile);
  const auto stage_of = [&](int64_t tile) { return memory + tile % kStages * Tiling::kStageBytes; };
  const auto load = [&](int64_t tile) {
    if (tile < tiles) {
      UnitLoader<T, Tiling::kRows, kDepth>::load(stage_of(tile), job.a, row, tile * kDepth);
      UnitLoader<T, Tiling::kCols, kDepth>::load(stage_of(tile) + kATileBytes, job.b, col, tile * kDepth);
    }
    commit_copies();
  };
  for (int64_t tile = 0; tile < kStages - 1; ++tile) load(tile);
  for (int64_t tile = 0; tile < tiles; ++tile) {
    wait_for_copies<kStages - 2>();
    barrier();  // the copies of all threads are there, and the stage that is loaded next was read by all
    load(tile + kStages - 1);
    if (idle) continue;
    const unsigned char* stage = stage_of(tile);
    for (int k = 0; k < kDepth && tile * kDepth + k < depth; k += kStep) {
      multiply_step<T, Tiling>(sums, job, stage, stage + kATileBytes, at.warp_row, at.warp_col, k);
      if constexpr (Cut) {
        const int64_t end = tile * kDepth + k + kStep;
        if (end % args.k_tile != 0 && end < depth) continue;
        add_partials(total, sums, job, at, end < depth ? end : depth);
        sums = {};
      }
    }
  }
  finish_sums(Cut ? total : sums, job, at, sum_tile);
}

template <class T, class Tiling>
void launch_units(const Job& job) {
  const int64_t blocks = pieces(job.a.rows, Tiling::kRows) * pieces(job.b.rows, Tiling::kCols);
  const Launch shape{"matmul_units", blocks, Tiling::kThreads, Tiling::kShared};
  if (job.product.args.k_tile == 0)
    launch(shape, unit_product_kernel<T, Tiling, false>, job);
  else
    launch(shape, unit_product_kernel<T, Tiling, true>, job);
}
template <class T>
void launch_units(const Job& job, UnitTiling tiling) {
  if (tiling == UnitTiling::automatic)
    tiling = job.a.rows <= FewRows::kRows  ? UnitTiling::few_rows
             : job.a.rows <= Medium::kRows ? UnitTiling::medium
                                           : UnitTiling::wide;
  switch (tiling) {
    case UnitTiling::few_rows:
      return launch_units<T, FewRows>(job);
    case UnitTiling::medium:
      return launch_units<T, Medium>(job);
    default:
      return launch_units<T, Wide>(job);
  }
}

UnitOperand operand(const ConstMatrix& m) {
  const auto aligned = [&](int64_t stride) { return stride % 8 == 0 && reinterpret_cast<uintptr_t>(m.data) % 16 == 0; };
  const Source source = m.col_stride == 1 && aligned(m.row_stride)   ? Source::deep
                        : m.row_stride == 1 && aligned(m.col_stride) ? Source::flat
                                                                     : Source::elements;
  return {source, m, {}, m.rows, m.cols};
}
UnitOperand operand(const PackedCodes& b) {
  const bool halves = b.format == Format::bf16 || b.format == Format::fp16;
  return {halves ? Source::panels : Source::codes, {}, b, b.rows, b.cols};
}

}  // namespace

void matmul_units(const MatmulArgs& args, UnitTiling tiling) {
  check_product(args);
  if (!fits_matrix_units(args))
    throw std::logic_error(
        "matmul_units: bf16 or fp16 rows by rows of the same type or by weights that are exact in it, k_tile a "
        "multiple "
        "of 16");
  if (is_empty_product(args)) return;
  const Job job{{args}, operand(args.a), is_packed(args) ? operand(args.packed_codes) : operand(args.b)};
  if (args.a.dtype == DType::bf16)
    launch_units<bf16>(job, tiling);
  else
    launch_units<fp16>(job, tiling);
}

}  // namespace motley::kernels::GPU_NAMESPACE
