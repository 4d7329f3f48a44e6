#include "kernels/packed_device.h"

#include <stdexcept>

#include "kernels/device_buffer.h"

namespace motley::kernels {

PackedOnDevice copied_to(const Device& device, const PackedMatrix& matrix) {
  PackedOnDevice on{copied_to(device, matrix.codes.data(), matrix.codes.size()),
                    copied_to(device, matrix.block_codes.data(), matrix.block_codes.size()),
                    {}};
  on.view = {on.codes.get(), on.block_codes.get(), matrix.rows, matrix.cols, matrix.format, matrix.scaling};
  return on;
}

PackedOnDevice copied_to(const Device& device, std::span<const PackedMatrix> matrices) {
  if (matrices.empty()) throw std::invalid_argument("grouped weights: there is no matrix");
  const PackedMatrix& first = matrices[0];
  PackedMatrix all;
  for (const PackedMatrix& m : matrices) {
    if (m.rows != first.rows || m.cols != first.cols || m.format != first.format || m.scaling != first.scaling)
      throw std::invalid_argument("grouped weights: the matrices differ in shape or form");
    all.codes.insert(all.codes.end(), m.codes.begin(), m.codes.end());
    all.block_codes.insert(all.block_codes.end(), m.block_codes.begin(), m.block_codes.end());
  }
  all.rows = first.rows;
  all.cols = first.cols;
  all.format = first.format;
  all.scaling = first.scaling;
  return copied_to(device, all);
}

}  // namespace motley::kernels
