// Times a device, by kind of work: device_bench KIND... [--device cuda:0] [--card NAME] [--tiny] [--json FILE]
// Prints a table; FILE gets one JSON line per row. Exit code 2 for wrong arguments, 1 for what failed.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <vector>

#include "kernels/device_buffer.h"
#include "kernels/parallel.h"
#include "tests/device/bench.h"

using namespace motley;
using namespace motley::device_bench;

namespace {

struct Kind {
  const char* name;
  void (*run)(const Setting&, const Report&);
};
constexpr Kind kKinds[] = {{"products", products},
                           {"attention", attention},
                           {"quantizers", quantizers},
                           {"decode", decode},
                           {"trainer", trainer}};

struct Arguments {
  Setting setting{{kernels::DeviceKind::cuda, 0}, false, nullptr};
  std::string json;
  std::vector<const Kind*> kinds;
};

Arguments parse(int count, char** words) {
  Arguments arguments;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    const auto value = [&] {
      if (++i == count) throw std::invalid_argument(word + " needs a value");
      return std::string(words[i]);
    };
    if (word == "--device") {
      arguments.setting.device = kernels::parse_device(value());
    } else if (word == "--card") {
      arguments.setting.card = find_card(value());
    } else if (word == "--tiny") {
      arguments.setting.tiny = true;
    } else if (word == "--json") {
      arguments.json = value();
    } else {
      const auto* kind =
          std::find_if(std::begin(kKinds), std::end(kKinds), [&](const Kind& k) { return k.name == word; });
      if (kind == std::end(kKinds))
        throw std::invalid_argument("there is no '" + word + "': products, attention, quantizers, decode, trainer");
      arguments.kinds.push_back(kind);
    }
  }
  if (arguments.kinds.empty())
    throw std::invalid_argument("name what to time: products, attention, quantizers, decode, trainer");
  return arguments;
}

int run(const Arguments& arguments) {
  const Setting& setting = arguments.setting;
  kernels::select_device(setting.device);
  kernels::set_compute_threads(setting.tiny ? 1 : 8);  // the host quantizes the weights
  std::ofstream json;
  if (!arguments.json.empty()) {
    json.open(arguments.json);
    if (!json) throw std::runtime_error("cannot write " + arguments.json);
  }
  for (const Kind* kind : arguments.kinds) {
    std::printf("%s on %s%s\n%s\n", kind->name, kernels::device_name(setting.device).c_str(),
                setting.tiny ? ", tiny: the times mean nothing" : "", table_head().c_str());
    kind->run(setting, [&](const Row& row) {
      std::puts(table_line(setting, row).c_str());
      std::fflush(stdout);
      if (json.is_open()) json << json_line(setting, row) << std::endl;
    });
  }
  if (json.is_open() && !json.flush()) throw std::runtime_error("cannot write " + arguments.json);
  return 0;
}

}  // namespace

int main(int count, char** words) {
  try {
    return run(parse(count, words));
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "device_bench: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "device_bench: %s\n", error.what());
    return 1;
  }
}
