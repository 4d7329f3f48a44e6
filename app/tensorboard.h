// TensorBoard event files: the scalars of every update under the names of docs/metrics.md.
#pragma once

#include <filesystem>
#include <fstream>

#include "algos/learner.h"

namespace motley::app {

class TensorBoardWriter {
 public:
  /// Makes events.out.tfevents.<seconds>.motley in `folder`.
  explicit TensorBoardWriter(const std::filesystem::path& folder);
  void write(int64_t update, const algos::Metrics& metrics);

 private:
  void record(const std::string& bytes);
  std::ofstream out_;
};
/// CRC-32C (Castagnoli) with TensorFlow's masking of record checksums.
uint32_t masked_crc32c(std::string_view bytes);

}  // namespace motley::app
