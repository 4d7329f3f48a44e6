// A packed matrix in the memory of a device.
#pragma once

#include <cstdint>
#include <memory>

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

}  // namespace motley::kernels
