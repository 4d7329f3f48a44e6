#include "kernels/packed_operand.h"

namespace motley::kernels {

PackedOperand::PackedOperand(PackedMatrix packed, const Device& device)
    : device_(device), bytes_(packed.bytes()), packed_(std::move(packed)) {
  if (device.kind == DeviceKind::cpu) return;
  on_device_ = copied_to(device, packed_);
  packed_ = {};
}

void PackedOperand::put_into(MatmulArgs& args) const {
  if (device_.kind == DeviceKind::cpu)
    args.packed = &packed_;
  else
    args.packed_codes = on_device_.view;
}

}  // namespace motley::kernels
