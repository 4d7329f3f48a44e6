// The product on warpgroups as the other products of this folder ask for it.
#pragma once

#include "kernels/cuda/unit_sums.h"

namespace motley::kernels::GPU_NAMESPACE {

/// Its tiles of K are 64 deep, and a k_tile ends where one of them does.
inline bool fits_warpgroups(const MatmulArgs& args) { return args.k_tile % 64 == 0; }

/// A product that fits matrix units. Throws std::logic_error where fits_warpgroups says no, std::runtime_error on a
/// device without them.
void warpgroup_product(const UnitJob& job);

}  // namespace motley::kernels::GPU_NAMESPACE
