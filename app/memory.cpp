#include "app/memory.h"

#include <fmt/format.h>
#include <sys/sysinfo.h>

#include "actors/probes.h"
#include "app/input_error.h"

namespace motley::app {

double least_memory(const Experiment& experiment) {
  if (!experiment.model.path.empty()) return 0;
  TransformerConfig config = experiment.model.config;
  config.vocabulary = 1;  // comes from the tokenizer later, and is small
  config = config.resolved();
  double weights = 0;
  for (const auto& [name, shape] : Parameters::layout(config)) {
    double count = 1;
    for (const int64_t size : shape) count *= static_cast<double>(size);
    weights += count;
  }
  double engines = 1;  // the learner has a table too
  for (const SamplerGroupOptions& group : experiment.samplers) engines += static_cast<double>(group.replicas);
  weights *= 5.0 + static_cast<double>(actors::probed_versions(experiment.probe));
  const double angles = static_cast<double>(config.max_positions) * static_cast<double>(config.head_dim);
  return 4.0 * (weights + engines * angles);
}

double physical_memory() {
  struct sysinfo info {};
  return sysinfo(&info) == 0 ? static_cast<double>(info.totalram) * info.mem_unit : 0;
}

std::string bytes_text(double bytes) {
  const bool large = bytes >= 0x1p40;
  return fmt::format("{:.1f} {}", bytes / (large ? 0x1p40 : 0x1p30), large ? "TiB" : "GiB");
}

void require_memory(const Experiment& experiment, const std::string& source) {
  const double needed = least_memory(experiment), present = physical_memory();
  if (present <= 0 || needed <= present) return;
  throw InputError({source},
                   fmt::format("training this model takes at least {}, and this machine has {}", bytes_text(needed),
                               bytes_text(present)),
                   "smaller sizes in [model] are needed: layers, width, heads x head_dim, ffn or max_positions");
}

}  // namespace motley::app
