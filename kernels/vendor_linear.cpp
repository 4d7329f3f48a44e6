#include "kernels/vendor_linear.h"

namespace motley::kernels {

VendorLinear::VendorLinear(const QuantizedMatrix& weight, const NumericProfile& profile, const Device& device) {
  const VendorProduct product = vendor_product_of_rows(profile, device);
  if (product == VendorProduct::none || !vendor_shape_refusal(product, weight.rows, weight.cols).empty()) return;
  product_ = product;
  const VendorBytes bytes =
      product == VendorProduct::plain ? VendorBytes{weight.codes, {}} : vendor_bytes(weight, product);
  code_bytes_ = copied_to(device, bytes.codes.data(), bytes.codes.size());
  if (!bytes.scales.empty()) scale_bytes_ = copied_to(device, bytes.scales.data(), bytes.scales.size());
  codes_ = {code_bytes_.get(), scale_bytes_.get(), weight.rows, weight.cols, weight.how.format};
  dtype_ = weight.how.format == Format::bf16   ? DType::bf16
           : weight.how.format == Format::fp16 ? DType::f16
                                               : DType::f32;
  bytes_ = static_cast<int64_t>(bytes.codes.size() + bytes.scales.size());
}

bool VendorLinear::forward(const QuantizedRows& x, const MatmulArgs& args) const {
  if (product_ == VendorProduct::none) return false;
  select_device(x.device());
  if (product_ != VendorProduct::plain) return cuda::vendor_matmul_codes(product_, x.codes(), codes_, args);
  MatmulArgs plain = args;
  plain.packed_codes = {};
  plain.b = row_major(codes_.codes, dtype_, codes_.rows, codes_.cols);
  return cuda::vendor_matmul(plain);
}

}  // namespace motley::kernels
