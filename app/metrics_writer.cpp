#include "app/metrics_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tensor/model_file.h"

namespace motley::app {
namespace {

/// Shortest text that reads back as the same number; infinities, which JSON lacks, as the largest finite number.
std::string number(double value) {
  if (std::isinf(value)) return value > 0 ? "1.7976931348623157e308" : "-1.7976931348623157e308";
  return value == std::floor(value) && std::abs(value) < 1e15 ? fmt::format("{:.0f}", value) : fmt::format("{}", value);
}

/// The text of the file up to and including the line of `update`; a last line that was cut short is dropped.
std::string lines_through(const std::filesystem::path& file, int64_t update) {
  std::ifstream in(file);
  std::string kept, line;
  while (std::getline(in, line)) {
    if (in.eof()) break;
    const auto row = nlohmann::json::parse(line, nullptr, false);
    const bool whole = row.is_object() && row.contains("update") && row["update"].is_number_integer();
    if (!whole || row["update"].get<int64_t>() > update) break;
    kept += line + '\n';
  }
  return kept;
}

}  // namespace

std::string metrics_line(int64_t update, const algos::Metrics& metrics) {
  std::string line = fmt::format("{{\"update\":{}", update);
  for (const auto& [name, value] : metrics)
    if (!std::isnan(value)) line += fmt::format(",{}:{}", nlohmann::json(name).dump(), number(value));
  return line + "}";
}

MetricsWriter::MetricsWriter(const std::filesystem::path& file, int64_t keep_through) : file_(file) {
  if (keep_through >= 0 && std::filesystem::exists(file))
    write_file_atomically(file, lines_through(file, keep_through));
  descriptor_ = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (descriptor_ < 0) throw std::runtime_error(file.string() + ": " + std::strerror(errno));
}

MetricsWriter::~MetricsWriter() { ::close(descriptor_); }

void MetricsWriter::write(int64_t update, const algos::Metrics& metrics) {
  const std::string line = metrics_line(update, metrics) + '\n';
  for (size_t done = 0; done < line.size();) {
    const ssize_t written = ::write(descriptor_, line.data() + done, line.size() - done);
    if (written < 0 && errno != EINTR) throw std::runtime_error(file_.string() + ": " + std::strerror(errno));
    if (written > 0) done += static_cast<size_t>(written);
  }
}

}  // namespace motley::app
