#include "actors/provision/provisioner.h"

#include <algorithm>
#include <cctype>

#include "actors/provision/command_provisioner.h"
#include "actors/provision/process_provisioner.h"

namespace motley::actors {
namespace {

std::string plain(std::string_view text, size_t most) {
  std::string name;
  for (const char c : text.substr(0, most)) {
    const auto byte = static_cast<unsigned char>(c);
    name += byte < 128 && std::isalnum(byte) ? static_cast<char>(std::tolower(byte)) : '-';
  }
  return name;
}

}  // namespace

const std::vector<std::string>& provisioner_names() {
  static const std::vector<std::string> names{"inproc", "process", "command"};
  return names;
}

std::unique_ptr<Provisioner> make_provisioner(const ProvisionOptions& options, const ProvisionContext& context,
                                              std::function<bool()> cancelled) {
  if (options.provisioner == "process") return std::make_unique<ProcessProvisioner>(sampler_command(context), context);
  if (options.provisioner == "command")
    return std::make_unique<CommandProvisioner>(options, context, std::move(cancelled));
  throw std::invalid_argument("there is no provisioner of the name " + options.provisioner);
}

std::string instance_prefix(std::string_view run, std::string_view group) {
  constexpr size_t kRun = 24, kGroup = 24;
  return plain(run, kRun) + "-" + plain(group, kGroup) + "-";
}

int64_t instance_number(std::string_view name, std::string_view prefix) {
  constexpr size_t kDigits = 9;
  if (!name.starts_with(prefix)) return 0;
  name.remove_prefix(prefix.size());
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  if (name.empty() || name.size() > kDigits || !std::all_of(name.begin(), name.end(), digit)) return 0;
  int64_t number = 0;
  for (const char c : name) number = 10 * number + (c - '0');
  return number;
}

}  // namespace motley::actors
