// Lists of the host's that are on a device already, so that the ops of a pass do not send them again.
#pragma once

#include <cstddef>
#include <memory>

namespace motley::ops {

/// While one lives, this thread's ops take the list that begins at `values` from `there`, where `bytes` of it are. It
/// must not change meanwhile.
class ListOnDevice {
 public:
  ListOnDevice(const void* values, size_t bytes, std::shared_ptr<const void> there);
  ~ListOnDevice();
  ListOnDevice(const ListOnDevice&) = delete;
  ListOnDevice& operator=(const ListOnDevice&) = delete;

  /// Null: nobody has said where such a list is.
  static std::shared_ptr<const void> find(const void* values, size_t bytes);

 private:
  const void* values_;
  size_t bytes_;
  std::shared_ptr<const void> there_;
};

}  // namespace motley::ops
