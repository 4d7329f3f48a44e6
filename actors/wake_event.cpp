#include "actors/wake_event.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

namespace motley::actors {

WakeEvent::WakeEvent() : descriptor_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (descriptor_ < 0) throw std::runtime_error(std::string("no event descriptor: ") + std::strerror(errno));
}

WakeEvent::~WakeEvent() { close(descriptor_); }

void WakeEvent::signal() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(descriptor_, &one, sizeof one);  // full: it is readable anyway
}

void WakeEvent::clear() const {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t taken = read(descriptor_, &count, sizeof count);
}

}  // namespace motley::actors
