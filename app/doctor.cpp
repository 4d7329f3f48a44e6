// motley doctor: what this machine can do, what is missing, and the command that mends it. Exit code 0 in any case.
#include <fmt/format.h>
#include <google/protobuf/stubs/common.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <caf/config.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "app/commands.h"
#include "app/devices.h"
#include "app/input_error.h"
#include "envs/sandbox/support.h"
#include "kernels/device_memory.h"
#include "kernels/product_body.h"
#include "kernels/vendor.h"

namespace motley::app {
namespace {

struct Finding {
  std::string name, value;
  std::string mend;  // the command that would help; empty: nothing is missing
};

std::string cpu_model() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t colon = line.find(':');
    return colon == std::string::npos ? line : line.substr(colon + 2);
  }
  return "unknown";
}

std::string instruction_sets() {
  std::string text;
#if defined(__x86_64__)
  const auto add = [&](bool there, const char* name) {
    if (there) text += (text.empty() ? "" : " ") + std::string(name);
  };
  add(__builtin_cpu_supports("avx2"), "avx2");
  add(__builtin_cpu_supports("fma"), "fma");
  add(__builtin_cpu_supports("f16c"), "f16c");
  add(__builtin_cpu_supports("avx512f"), "avx512f");
  add(__builtin_cpu_supports("avx512bf16"), "avx512bf16");
#else
  text = "no x86";
#endif
  return text;
}

std::string memory() {
  struct sysinfo info {};
  if (sysinfo(&info) != 0) return "unknown";
  const double unit = static_cast<double>(info.mem_unit) / (1024.0 * 1024.0 * 1024.0);
  std::string text = fmt::format("{:.1f} GiB", static_cast<double>(info.totalram) * unit);
  std::ifstream in("/proc/meminfo");
  for (std::string key, rest; in >> key && std::getline(in, rest);) {
    if (key == "MemAvailable:") text += fmt::format(", {:.1f} GiB available", std::stod(rest) / (1024.0 * 1024.0));
  }
  return text;
}

/// 90100 with a step of 100 is 9.1.0.
std::string version(int packed, int step) {
  return fmt::format("{}.{}.{}", packed / step / step, packed / step % step, packed % step);
}

Finding terminal() {
  return {"terminal", isatty(STDERR_FILENO) != 0 ? "live display" : "none: progress is one line per update", ""};
}

Finding working_folder() {
  const bool writable = access(".", W_OK) == 0;
  std::error_code error;
  const auto space = std::filesystem::space(".", error);
  std::string text = writable ? "writable" : "not writable";
  if (!error)
    text += fmt::format(", {:.1f} GiB free", static_cast<double>(space.available) / (1024.0 * 1024.0 * 1024.0));
  return {"working folder", text,
          writable ? "" : "set run.dir to a folder that you may write: --set run.dir=/tmp/runs"};
}

Finding gpu() {
  const char* driver = std::filesystem::exists("/dev/nvidiactl") ? "an NVIDIA driver here" : "no NVIDIA driver here";
  const std::string bodies = kernels::cuda::built()
                                 ? fmt::format("kernels in this build (docs/ops.md), {} devices that can be used",
                                               kernels::cuda::device_count())
                                 : "kernels not in this build";
  return {"CUDA", fmt::format("{}; {}", bodies, driver), ""};
}

/// Which instruction computes wide products on matrix units (docs/decisions.md); empty: the device has one alone.
std::string wide_products(const kernels::Device& device) {
  if (device.kind != kernels::DeviceKind::cuda) return {};
  kernels::cuda::use_device(device.index);
  if (kernels::cuda::compute_capability() != 90) return {};
  const std::string refusal = kernels::cuda::warpgroup_refusal();
  return "wide products by " + (refusal.empty() ? "wgmma" : "mma.sync (wgmma: " + refusal + ")");
}

/// What computes the linear layers of each profile there.
Finding products_on(const kernels::Device& device) {
  std::map<kernels::ProductBody, std::vector<std::string>> names;
  for (const kernels::NumericProfile& profile : kernels::profiles())
    names[product_body(profile, device)].push_back(profile.name);
  std::vector<std::string> lines;
  for (const auto& [body, profiles] : names)
    lines.push_back(fmt::format("{}: {}", product_body_name(body), join(profiles, ", ")));
  const bool cuda = device.kind == kernels::DeviceKind::cuda, emulated = device.kind == kernels::DeviceKind::emulated;
  if (cuda || emulated)
    lines.push_back(fmt::format("with kernels = \"vendor\": {}matrix units, where they take the operands, else chain",
                                cuda ? "cuBLASLt and cuDNN, or " : ""));
  if (const std::string wide = wide_products(device); !wide.empty()) lines.push_back(wide);
  if (emulated) lines.emplace_back("the CUDA source on the CPU, slow: for tests");
  return {"on " + kernels::device_name(device), join(lines, "; "), ""};
}

Finding vendor_libraries() {
  const std::string text = kernels::cuda::cublaslt_library() + "; " + kernels::cuda::cudnn_library();
  const bool missing = kernels::cuda::built() && text.find("no cu") != std::string::npos;
  return {"vendor kernels", text,
          missing ? "put the folder of the missing library into LD_LIBRARY_PATH: kernels = \"vendor\" does without it"
                  : ""};
}

Finding sandboxes() {
  const envs::SandboxSupport support = envs::examine_sandboxes();
  return {"sandboxes", support.state, support.mend};
}

std::vector<Finding> examine() {
  std::vector<Finding> findings{
      {"motley", MOTLEY_VERSION, ""},
      {"processor", cpu_model(), ""},
      {"cores", std::to_string(std::thread::hardware_concurrency()), ""},
      {"instruction sets", instruction_sets(), ""},
      {"memory", memory(), ""},
      {"compiler", std::string("g++ ") + __VERSION__, ""},
      {"libraries",
       fmt::format("CAF {}, protobuf {}, fmt {}", version(CAF_VERSION, 100), version(GOOGLE_PROTOBUF_VERSION, 1000),
                   version(FMT_VERSION, 100)),
       ""},
      gpu(),
      vendor_libraries(),
      sandboxes(),
      working_folder(),
      terminal(),
  };
  for (const kernels::Device& device : devices_here()) findings.push_back(products_on(device));
  return findings;
}

/// Parts of a value on lines of their own.
std::string folded(std::string value) {
  constexpr std::string_view kBetween = "; ", kNewLine = ";\n                  ";
  for (size_t at = value.find(kBetween); at != std::string::npos; at = value.find(kBetween, at + kNewLine.size()))
    value.replace(at, kBetween.size(), kNewLine);
  return value;
}

}  // namespace

int doctor_command(bool json) {
  const std::vector<Finding> findings = examine();
  if (json) {
    nlohmann::json out;
    for (const Finding& finding : findings) {
      out[finding.name] = {{"value", finding.value}};
      if (!finding.mend.empty()) out[finding.name]["mend"] = finding.mend;
    }
    std::printf("%s\n", out.dump().c_str());
    return 0;
  }
  bool missing = false;
  for (const Finding& finding : findings) {
    std::fputs(fmt::format("{:<17} {}\n", finding.name, folded(finding.value)).c_str(), stdout);
    if (!finding.mend.empty()) std::fputs(fmt::format("{:<17} -> {}\n", "", finding.mend).c_str(), stdout);
    missing = missing || !finding.mend.empty();
  }
  if (!missing) std::fputs("nothing is missing\n", stdout);
  return 0;
}

}  // namespace motley::app
