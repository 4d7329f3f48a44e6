#include "kernels/product_body.h"

#include "kernels/device_buffer.h"
#include "kernels/hopper_fp8.h"
#include "kernels/quantized_rows.h"
#include "kernels/vendor.h"

namespace motley::kernels {

DType unit_rows(const NumericProfile& profile) {
  return profile.activation.format == Format::fp16 ? DType::f16 : DType::bf16;
}

ProductBody product_body(const NumericProfile& profile, const Device& device) {
  if (profile.accumulation == Accumulation::hopper_fp8) return ProductBody::hopper_fp8;
  if (device.kind == DeviceKind::cpu || (profile.invariant && profile.hardware.empty())) return ProductBody::chain;
  if (profile.activation.format == Format::fp32) return ProductBody::chain;
  const uint8_t weights = 0;  // there are some
  MatmulArgs args;
  args.a.dtype = unit_rows(profile);
  args.k_tile = sums_by_blocks(profile) ? 128 : profile.k_tile;
  const Scaling scaling = profile.weight.scaling;
  args.packed_codes.codes = &weights;
  args.packed_codes.format = profile.weight.format;
  args.packed_codes.scaling = scaling == Scaling::mx32 || scaling == Scaling::nv16 ? scaling : Scaling::none;
  return fits_matrix_units(args) ? ProductBody::matrix_units : ProductBody::chain;
}

const char* product_body_name(ProductBody body) {
  switch (body) {
    case ProductBody::chain:
      return "chain";
    case ProductBody::matrix_units:
      return "matrix units";
    case ProductBody::vendor:
      return "vendor";
    case ProductBody::hopper_fp8:
      return "modelled accumulation";
  }
  return "?";
}

void compute_product(ProductBody body, const Device& device, const MatmulArgs& args) {
  select_device(device);
  compute_here(body, device.kind, args);
}

void compute_here(ProductBody body, DeviceKind kind, const MatmulArgs& args) {
  const bool on_cuda = kind == DeviceKind::cuda;
  if (body == ProductBody::vendor) {
    if (on_cuda && cuda::vendor_matmul(args)) return;
    const bool units = kind != DeviceKind::cpu && fits_matrix_units(args);
    body = units ? ProductBody::matrix_units : ProductBody::chain;
  }
  if (body == ProductBody::chain) {
    MOTLEY_DISPATCH(Device{kind}, matmul, args);
  } else if (body == ProductBody::hopper_fp8) {
    MOTLEY_DISPATCH(Device{kind}, hopper_fp8_product, args);
  } else {
    on_cuda ? cuda::matmul_units(args) : emulated::matmul_units(args);
  }
}

}  // namespace motley::kernels
