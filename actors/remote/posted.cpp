#include "actors/remote/posted.h"

namespace motley::actors {

void Posted::post(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
  }
  wake_.signal();
}

void Posted::run() {
  wake_.clear();
  std::vector<std::function<void()>> work;
  {
    const std::lock_guard lock(mutex_);
    work.swap(work_);
  }
  for (const auto& each : work) each();
}

}  // namespace motley::actors
