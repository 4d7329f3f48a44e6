#include "kernels/vendor_codes.h"

#include <cstring>
#include <stdexcept>

namespace motley::kernels {
namespace {

std::vector<uint8_t> tiled(const QuantizedMatrix& m, int64_t length) {
  const int64_t blocks = (m.cols + length - 1) / length;
  std::vector<uint8_t> out(static_cast<size_t>(tiled_scale_bytes(m.rows, blocks)), 0);
  for (int64_t r = 0; r < m.rows; ++r)
    for (int64_t b = 0; b < blocks; ++b)
      out[static_cast<size_t>(tiled_scale_place(r, b, blocks))] = m.block_codes[static_cast<size_t>(r * blocks + b)];
  return out;
}

/// Scales [outer, blocks] of floats, each at place(outer, block); 1 between them.
template <class Place>
std::vector<uint8_t> placed(const std::vector<float>& scales, int64_t outer, int64_t blocks, int64_t count,
                            Place place) {
  std::vector<float> floats(static_cast<size_t>(count), 1.0f);
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t b = 0; b < blocks; ++b)
      floats[static_cast<size_t>(place(o, b))] = scales[static_cast<size_t>(o * blocks + b)];
  std::vector<uint8_t> bytes(floats.size() * sizeof(float));
  if (!bytes.empty()) std::memcpy(bytes.data(), floats.data(), bytes.size());
  return bytes;
}

}  // namespace

VendorBytes vendor_bytes(const QuantizedMatrix& m, VendorProduct product) {
  const Scaling scaling = m.how.scaling;
  const int64_t blocks = (m.cols + 127) / 128;
  VendorBytes out{m.codes, {}};
  const auto wrong = [] { return std::invalid_argument("vendor_bytes: these scales are not those of the product"); };
  switch (product) {
    case VendorProduct::fp8:
      if (scaling != Scaling::none && scaling != Scaling::tensor && scaling != Scaling::channel) throw wrong();
      return out;
    case VendorProduct::mxfp8:
      if (scaling != Scaling::mx32) throw wrong();
      out.scales = tiled(m, 32);
      return out;
    case VendorProduct::nvfp4:
      if (scaling != Scaling::nv16) throw wrong();
      out.scales = tiled(m, 16);
      return out;
    case VendorProduct::fp8_blocks:
      if (scaling == Scaling::block128x128) {
        const int64_t outer = (m.rows + 127) / 128;
        out.scales = placed(m.scales, outer, blocks, square_scale_place(outer, 0, blocks),
                            [&](int64_t o, int64_t b) { return square_scale_place(o, b, blocks); });
      } else if (scaling == Scaling::block1x128) {
        out.codes.resize(static_cast<size_t>((m.rows + 3) / 4 * 4 * m.cols), 0);
        out.scales = placed(m.scales, m.rows, blocks, row_scale_place(0, blocks, m.rows),
                            [&](int64_t r, int64_t b) { return row_scale_place(r, b, m.rows); });
      } else {
        throw wrong();
      }
      return out;
    default:
      throw wrong();
  }
}

}  // namespace motley::kernels
