#include "kernels/cuda/shared_library.h"

#include <dlfcn.h>

namespace motley::kernels::cuda {

SharedLibrary::SharedLibrary(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    for (const std::string& path : {std::string(name), std::string("/usr/local/cuda/lib64/") + name}) {
      handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (handle_ == nullptr) continue;
      name_ = name;
      problem_.clear();
      return;
    }
    problem_ += (problem_.empty() ? "no " : ", no ") + std::string(name);
  }
}

void* SharedLibrary::address_of(const char* name) {
  if (handle_ == nullptr) return nullptr;
  void* const address = dlsym(handle_, name);
  if (address == nullptr && problem_.empty()) problem_ = name_ + " has no function " + name;
  return address;
}

}  // namespace motley::kernels::cuda
