#include "kernels/packed_device.h"

#include "kernels/device_buffer.h"

namespace motley::kernels {

PackedOnDevice copied_to(const Device& device, const PackedMatrix& matrix) {
  PackedOnDevice on{copied_to(device, matrix.codes.data(), matrix.codes.size()),
                    copied_to(device, matrix.block_codes.data(), matrix.block_codes.size()),
                    {}};
  on.view = {on.codes.get(), on.block_codes.get(), matrix.rows, matrix.cols, matrix.format, matrix.scaling};
  return on;
}

}  // namespace motley::kernels
