#include "kernels/packed_operand.h"

#include "kernels/quantize.h"

namespace motley::kernels {

PackedOperand::PackedOperand(PackedMatrix packed, const Device& device)
    : device_(device), bytes_(packed.bytes()), packed_(std::move(packed)) {
  if (device.kind == DeviceKind::cpu) return;
  on_device_ = copied_to(device, packed_);
  packed_ = {};
}

QuantizedMatrix PackedOperand::unpack(const Quantization& how) const {
  if (device_.kind == DeviceKind::cpu) return kernels::unpack(packed_, how);
  const PackedCodes& view = on_device_.view;
  const int64_t panels = (view.rows + kPanelRows - 1) / kPanelRows;
  PackedMatrix host;
  host.rows = view.rows;
  host.cols = view.cols;
  host.format = view.format;
  host.scaling = view.scaling;
  host.codes.resize(static_cast<size_t>(panels * panel_bytes(view.format, view.cols)));
  host.block_codes.resize(static_cast<size_t>(panels * panel_block_bytes(view.scaling, view.cols)));
  copy_bytes(host.codes.data(), {}, view.codes, device_, host.codes.size());
  copy_bytes(host.block_codes.data(), {}, view.block_codes, device_, host.block_codes.size());
  return kernels::unpack(host, how);
}

void PackedOperand::put_into(MatmulArgs& args) const {
  if (device_.kind == DeviceKind::cpu)
    args.packed = &packed_;
  else
    args.packed_codes = on_device_.view;
}

}  // namespace motley::kernels
