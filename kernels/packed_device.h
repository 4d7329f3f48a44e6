// A packed matrix in the memory of a device.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/device.h"
#include "kernels/packed_layout.h"
#include "kernels/packed_matrix.h"

namespace motley::kernels {

/// The memory that `view` points to lives as long as this does.
struct PackedOnDevice {
  std::shared_ptr<const uint8_t> codes, block_codes;
  PackedCodes view;  // MatmulArgs::packed_codes
};
/// Throws std::runtime_error where there is no such device or not enough memory.
PackedOnDevice copied_to(const Device& device, const PackedMatrix& matrix);
/// The matrices of a grouped product (kernels/matmul_grouped.h), one behind the other; the view is that of the first.
/// Throws std::invalid_argument where they are not of one shape and form, or there is none.
PackedOnDevice copied_to(const Device& device, std::span<const PackedMatrix> matrices);

}  // namespace motley::kernels
