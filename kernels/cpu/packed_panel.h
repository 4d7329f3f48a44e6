// Panels of a PackedMatrix: where they lie, and decoding one to float.
#pragma once

#include "kernels/packed_layout.h"
#include "kernels/packed_matrix.h"

namespace motley::kernels::cpu {

/// out[depth][16] = columns [k0, k0 + depth) of the panel's rows, as decode_codes gives them (a signalling NaN may come
/// out quiet).
void decode_panel(const PackedMatrix& b, int64_t panel, int64_t k0, int64_t depth, float* out);

}  // namespace motley::kernels::cpu
