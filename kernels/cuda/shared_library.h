// A shared library that is loaded when it is first asked for, so that motley starts on a machine without it.
#pragma once

#include <initializer_list>
#include <string>

namespace motley::kernels::cuda {

/// Stays loaded until the process ends.
class SharedLibrary {
 public:
  /// Tries the names in turn, each where the loader looks and then in the toolkit's usual folder.
  explicit SharedLibrary(std::initializer_list<const char*> names);
  bool found() const { return handle_ != nullptr; }
  /// The name that was found.
  const std::string& name() const { return name_; }
  /// Why none was, or which function is not in it; empty: nothing is missing so far.
  const std::string& problem() const { return problem_; }
  /// Sets the function; null and a problem where the library has none of that name.
  template <class Function>
  void load(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(address_of(name));
  }

 private:
  void* address_of(const char* name);

  void* handle_ = nullptr;
  std::string name_, problem_;
};

}  // namespace motley::kernels::cuda
