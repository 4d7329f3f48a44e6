// The vectorized part of the float product, one body per instruction set, chosen at run time.
//
// The second operand is read in panels of kPanel rows of B (columns of C): panel[k][kPanel], zeros beyond N, packed or
// where they lie. The layout is the same for every instruction set, and so is every bit of the result.
#pragma once

#include "kernels/matmul.h"

namespace motley::kernels::cpu {

constexpr int64_t kPanel = 16;
constexpr int64_t kTilePanels = 3;  // of one tile of C
constexpr int64_t panel_count(int64_t n) { return (n + kPanel - 1) / kPanel; }

/// Decodes rows [16 panel, 16 panel + 16) of B into `out` [K][kPanel].
void pack_panel(const ConstMatrix& b, int64_t panel, float* out);

/// Rows [row_begin, row_end) of C, columns of panels [panel_begin, panel_end). `panels` starts at panel_begin.
/// Neither M, N nor K is 0.
struct MatmulPiece {
  const MatmulArgs* args;
  const float* panels;
  int64_t panel_stride, depth_stride;  // elements from one panel, and one k, to the next
  int64_t row_begin, row_end;
  int64_t panel_begin, panel_end;
  int64_t n;  // rows of B
};
void matmul_piece(const MatmulPiece& piece);

/// The instruction sets that this machine can run, and which one to use (all of them by default); for tests.
int instruction_sets();
void use_instruction_set(int index);
void use_best_instruction_set();

}  // namespace motley::kernels::cpu
