#include "tensor/list_on_device.h"

#include <utility>
#include <vector>

namespace motley::ops {
namespace {
thread_local std::vector<const ListOnDevice*> known;
}  // namespace

ListOnDevice::ListOnDevice(const void* values, size_t bytes, std::shared_ptr<const void> there)
    : values_(values), bytes_(bytes), there_(std::move(there)) {
  known.push_back(this);
}

ListOnDevice::~ListOnDevice() { std::erase(known, this); }

std::shared_ptr<const void> ListOnDevice::find(const void* values, size_t bytes) {
  if (bytes == 0) return nullptr;
  for (const ListOnDevice* list : known)
    if (list->values_ == values && bytes <= list->bytes_) return list->there_;
  return nullptr;
}

}  // namespace motley::ops
