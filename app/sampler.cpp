// motley sampler: joins a run elsewhere as one of its samplers; the work is actors/remote/join.h.
#include <tuple>

#include "actors/checkpoint.h"
#include "actors/remote/join.h"
#include "app/commands.h"
#include "app/devices.h"
#include "app/joining.h"
#include "kernels/device_memory.h"
#include "tensor/config_json.h"
#include "tensor/model_file.h"

namespace motley::app {
namespace {

/// What profiles call the accelerator; empty for a CPU.
std::string hardware_of(const kernels::Device& device) {
  if (device.kind != kernels::DeviceKind::cuda) return {};
  constexpr size_t kLargestH100 = size_t{100} << 30;  // bytes: an H200 has 141 GB
  kernels::cuda::use_device(device.index);
  switch (const int capability = kernels::cuda::compute_capability(); capability) {
    case 80:
      return "A100";
    case 90:
      return kernels::cuda::memory_use().total > kLargestH100 ? "H200" : "H100";
    case 100:
      return "B200";
    case 103:
      return "B300";
    case 120:
      return "RTX PRO 6000";
    default:
      return "compute capability " + std::to_string(capability);
  }
}

/// config.json of a checkpoint or run folder, as the run writes its own.
std::string model_of(const std::string& folder) {
  const std::filesystem::path file = actors::find_checkpoint(folder) / "config.json";
  return config_to_json(config_from_json(file, read_file(file)).resolved());
}

}  // namespace

int sampler_command(const SamplerArguments& arguments) {
  actors::StopRequest stop{0};
  const LeaveOnSignal signals(stop, "what is being drawn goes on elsewhere");
  actors::JoinRequest request;
  std::tie(request.address, request.keys) = run_to_join(arguments.join, arguments.key);
  request.device = device_or_best(arguments.device);
  request.hardware = hardware_of(request.device);
  request.group = arguments.group;
  request.instance = arguments.instance;
  request.patience = std::chrono::seconds(arguments.patience);
  if (!arguments.model.empty()) request.model = model_of(arguments.model);
  use_compute_threads(arguments.threads);
  say_end(actors::run_sampler(request, say_line, stop));
  return 0;
}

}  // namespace motley::app
