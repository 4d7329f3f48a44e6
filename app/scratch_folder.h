// A folder for the runs of a benchmark, gone afterwards.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

namespace motley::app {

/// Empty at first, so that every run starts cold.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "motley-bench-XXXXXX").string();
    if (!mkdtemp(pattern.data()))
      throw std::runtime_error("no scratch folder can be made in " + std::filesystem::temp_directory_path().string());
    path_ = pattern;
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace motley::app
