// Tiles of operands in shared memory for the products on matrix units: how they lie there, how asynchronous copies
// bring them, and how fragments are read from them. Chunks of 16 bytes are permuted within a line of shared memory, so
// that the eight rows of an 8 x 8 matrix lie in different banks.
#pragma once

#include "kernels/cuda/fragments.h"
#include "kernels/cuda/packed_form.h"
#include "kernels/matmul.h"

namespace motley::kernels::GPU_NAMESPACE {

/// How an operand [rows, K] lies in device memory.
enum class Source : uint8_t {
  deep,      // elements of a row side by side, rows at multiples of 16 bytes
  flat,      // elements of a column side by side, columns at multiples of 16 bytes
  elements,  // otherwise: copied one by one
  panels,    // a packed matrix of bf16 or fp16
  codes,     // a packed matrix of e4m3, e5m2 or e2m1, decoded on the way into registers
};

struct UnitOperand {
  Source source;
  ConstMatrix matrix;
  PackedCodes packed;
  int64_t rows, depth;  // K
};

/// A tile of `W` rows and `Depth` columns, both multiples of 16, of elements of 16 bits or of codes. `deep` tiles are
/// [row][k], filled from Source::deep and ::elements; `flat` ones [k][row], from ::flat and ::panels.
template <int W, int Depth>
struct UnitTile {
  static constexpr int kBytes = W * Depth * 2;
  static constexpr int kDeepChunks = Depth / 8, kFlatChunks = W / 8, kPanels = W / 16;
  static constexpr int kScalesAt = W * Depth;  // of codes: behind them
  static_assert(kDeepChunks >= 8 && W % 16 == 0 && kBytes % 16 == 0);

  /// Byte offsets of a chunk: eight elements, a panel's 16 codes, four rows' words of eight e2m1 codes, a panel's
  /// scales.
  GPU_DEVICE static int deep_at(int row, int chunk) { return (row * kDeepChunks + (chunk ^ (row % 8))) * 16; }
  GPU_DEVICE static int flat_at(int k, int chunk) {
    constexpr int kTurn = kFlatChunks < 8 ? kFlatChunks : 8;
    return (k * kFlatChunks + (chunk ^ (k / (8 / kTurn) % kTurn))) * 16;
  }
  GPU_DEVICE static int byte_codes_at(int k, int panel) { return (k * kPanels + (panel ^ (k / 2 % kPanels))) * 16; }
  GPU_DEVICE static int word_codes_at(int word, int quarter) { return (word * kPanels * 4 + quarter) * 16; }
  GPU_DEVICE static int scales_at(int block, int panel) { return kScalesAt + (block * kPanels + panel) * 16; }
};

/// Calls body<F, S>() for the form of a matrix of Source::codes.
template <class Body>
GPU_DEVICE void visit_code_form(const PackedCodes& b, const Body& body) {
  visit_packed_form(b, [&]<Format F, Scaling S>() {
    if constexpr (F == Format::e4m3 || F == Format::e5m2 || F == Format::e2m1) body.template operator()<F, S>();
  });
}

GPU_DEVICE int64_t clamped(int64_t x, int64_t most) { return x < 0 ? 0 : x < most ? x : most; }

/// Starts the copies of rows [row, row + W) and columns [k, k + Depth), zeros beyond the operand. T: bf16 or fp16.
template <class T, int W, int Depth>
class UnitLoader {
 public:
  using Tile = UnitTile<W, Depth>;

  GPU_DEVICE static void load(unsigned char* to, const UnitOperand& m, int64_t row, int64_t k) {
    switch (m.source) {
      case Source::deep:
        return load_deep(to, m, row, k);
      case Source::flat:
        return load_flat(to, m, row, k);
      case Source::elements:
        return load_elements(to, m, row, k);
      case Source::panels:
        return load_panels(to, m, row, k);
      case Source::codes:
        return load_codes(to, m, row, k);
    }
  }

 private:
  GPU_DEVICE static void load_deep(unsigned char* to, const UnitOperand& m, int64_t row, int64_t k) {
    const T* data = static_cast<const T*>(m.matrix.data);
    for (int i = thread(); i < W * Tile::kDeepChunks; i += threads()) {
      const int r = i / Tile::kDeepChunks, c = i % Tile::kDeepChunks;
      const int64_t count = row + r < m.rows ? clamped(m.depth - k - 8 * c, 8) : 0;
      const T* from = count == 0 ? data : data + (row + r) * m.matrix.row_stride + k + 8 * c;
      copy_async(to + Tile::deep_at(r, c), from, static_cast<int>(count) * 2);
    }
  }
  GPU_DEVICE static void load_flat(unsigned char* to, const UnitOperand& m, int64_t row, int64_t k) {
    const T* data = static_cast<const T*>(m.matrix.data);
    for (int i = thread(); i < Depth * Tile::kFlatChunks; i += threads()) {
      const int depth = i / Tile::kFlatChunks, c = i % Tile::kFlatChunks;
      const int64_t count = k + depth < m.depth ? clamped(m.rows - row - 8 * c, 8) : 0;
      const T* from = count == 0 ? data : data + (k + depth) * m.matrix.col_stride + row + 8 * c;
      copy_async(to + Tile::flat_at(depth, c), from, static_cast<int>(count) * 2);
    }
  }
  GPU_DEVICE static void load_elements(unsigned char* to, const UnitOperand& m, int64_t row, int64_t k) {
    const T* data = static_cast<const T*>(m.matrix.data);
    const bool deep = m.matrix.col_stride == 1;
    for (int i = thread(); i < W * Depth; i += threads()) {
      const int r = deep ? i / Depth : i % W, depth = deep ? i % Depth : i / W;
      const bool inside = row + r < m.rows && k + depth < m.depth;
      const int64_t from = (row + r) * m.matrix.row_stride + (k + depth) * m.matrix.col_stride;
      reinterpret_cast<T*>(to + Tile::deep_at(r, depth / 8))[depth % 8] = inside ? data[from] : T(0.0f);
    }
  }
  GPU_DEVICE static void load_panels(unsigned char* to, const UnitOperand& m, int64_t row, int64_t k) {
    const int64_t stride = panel_bytes(Format::bf16, m.depth);
    for (int i = thread(); i < Depth * Tile::kFlatChunks; i += threads()) {
      const int depth = i / Tile::kFlatChunks, c = i % Tile::kFlatChunks;
      const int64_t panel = row / kPanelRows + c / 2;
      const bool inside = panel * kPanelRows < m.rows && k + depth < m.depth;
      const int64_t from = panel * stride + (k + depth) * 32 + c % 2 * 16;
      copy_async(to + Tile::flat_at(depth, c), m.packed.codes + (inside ? from : 0), inside ? 16 : 0);
    }
  }
  GPU_DEVICE static void load_codes(unsigned char* to, const UnitOperand& m, int64_t row, int64_t k) {
    const PackedCodes& b = m.packed;
    const bool words = b.format == Format::e2m1;
    const int64_t stride = panel_bytes(b.format, b.cols), first = row / kPanelRows;
    // Eight k of words are a step of four chunks to a panel; of bytes, four k are four chunks, and each is a step.
    const int per_panel = words ? 4 : 1, per_step = Tile::kPanels * per_panel;
    const int64_t begin = words ? k / 8 : k, end = words ? pieces(b.cols, 8) : pieces(b.cols, 4) * 4;
    for (int i = thread(); i < (words ? Depth / 8 : Depth) * per_step; i += threads()) {
      const int step = i / per_step, c = i % per_step;
      const bool inside = (first + c / per_panel) * kPanelRows < b.rows && begin + step < end;
      const int64_t from = (first + c / per_panel) * stride + ((begin + step) * per_panel + c % per_panel) * 16;
      const int at = words ? Tile::word_codes_at(step, c) : Tile::byte_codes_at(step, c);
      copy_async(to + at, b.codes + (inside ? from : 0), inside ? 16 : 0);
    }
    if (b.scaling != Scaling::none) load_scales(to, b, first, k / block_length(b.scaling));
  }
  GPU_DEVICE static void load_scales(unsigned char* to, const PackedCodes& b, int64_t first, int64_t block) {
    const int64_t length = block_length(b.scaling), stride = panel_block_bytes(b.scaling, b.cols);
    for (int i = thread(); i < Depth / static_cast<int>(length) * Tile::kPanels; i += threads()) {
      const int step = i / Tile::kPanels, c = i % Tile::kPanels;
      const bool inside = (first + c) * kPanelRows < b.rows && (block + step) * length < b.cols;
      const int64_t from = (first + c) * stride + (block + step) * 16;
      copy_async(to + Tile::scales_at(step, c), b.block_codes + (inside ? from : 0), inside ? 16 : 0);
    }
  }
};

/// The fragment a of rows [row, row + 16) and columns [k, k + 16) of a tile.
template <class Tile>
GPU_DEVICE void load_a(uint32_t (&a)[4], const unsigned char* tile, bool flat, int row, int k) {
  const int lane = thread() % kWarp, matrix = lane / 8, r = lane % 8;
  if (flat)
    load_fragments<true>(a, tile + Tile::flat_at(k + matrix / 2 * 8 + r, row / 8 + matrix % 2));
  else
    load_fragments<false>(a, tile + Tile::deep_at(row + matrix % 2 * 8 + r, k / 8 + matrix / 2));
}
/// The fragments b of rows [row, row + 8) and [row + 8, row + 16).
template <class Tile>
GPU_DEVICE void load_b(uint32_t (&b)[4], const unsigned char* tile, bool flat, int row, int k) {
  const int lane = thread() % kWarp, matrix = lane / 8, r = lane % 8;
  if (flat)
    load_fragments<true>(b, tile + Tile::flat_at(k + matrix % 2 * 8 + r, row / 8 + matrix / 2));
  else
    load_fragments<false>(b, tile + Tile::deep_at(row + matrix / 2 * 8 + r, k / 8 + matrix % 2));
}

/// The fragment b of rows [row, row + 8) from codes, with their block scales: exact in T, but for mx scales whose
/// values are subnormal there.
template <Operand O, Format F, Scaling S, class Tile>
GPU_DEVICE void decode_b(uint32_t (&b)[2], const unsigned char* tile, int row, int k) {
  const int lane = here(thread() % kWarp), n = row + lane / 4, t = lane % 4;
  float scale = 1.0f;
  if constexpr (S != Scaling::none)
    scale = block_scale<S>(tile[Tile::scales_at(k / static_cast<int>(block_length(S)), n / 16) + n % 16]);
  GPU_UNROLL
  for (int j = 0; j < 2; ++j) {
    float pair[2];
    GPU_UNROLL
    for (int e = 0; e < 2; ++e) {
      const int depth = k + 8 * j + 2 * t + e;
      uint32_t code;
      if constexpr (F == Format::e2m1) {
        const int at = Tile::word_codes_at(depth / 8, n / 4) + n % 4 * 4;
        code = *reinterpret_cast<const uint32_t*>(tile + at) >> (depth % 8 * 4) & 15u;
      } else {
        const auto place = static_cast<int>(byte_place(depth % 4, n % 16));
        code = tile[Tile::byte_codes_at(depth / 4 * 4 + place / 16, n / 16) + place % 16];
      }
      pair[e] = S == Scaling::none ? decode<F>(code) : decode<F>(code) * scale;
    }
    b[j] = operand_pair<O>(pair[0], pair[1]);
  }
}

}  // namespace motley::kernels::GPU_NAMESPACE
