#include "tests/fleet/fleet_run.h"

#include <cstdlib>
#include <stdexcept>

namespace motley::fleet {

std::string small_experiment(int replicas) {
  std::string text = R"(name = "small"
[run]
updates = 1000000
async = true
concurrency = 64
checkpoint_every = 20
[model]
layers = 2
width = 128
heads = 2
kv_heads = 1
max_positions = 64
[[tasks]]
env = "arithmetic"
digits = 2
run_on = 0.5
[warmstart]
steps = 40
batch = 32
lr = 1e-2
[sampling]
max_tokens = 32
[algo]
correction = "sc+mis"
prompts = 8
group_size = 4
[trainer]
lr = 1e-3
[eval]
every = 1000000
prompts = 8
samples = 1
k = [1]
profiles = ["bf16"]
)";
  const std::string count = std::to_string(replicas);
  for (const auto& [name, profile] :
       {std::pair("a", "h100-fp8"), std::pair("b", "b200-nvfp4"), std::pair("c", "a100-bf16")})
    text += std::string("[[samplers]]\nname = \"") + name + "\"\nprofile = \"" + profile + "\"\nreplicas = " + count +
            "\nmax_sequences = 32\n";
  return text;
}

std::vector<std::string> motley(const std::vector<std::string>& words) {
  std::vector<std::string> all{MOTLEY_BINARY};
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

std::vector<std::string> sampler_words(const Joining& joining) {
  std::vector<std::string> words{
      "sampler", "--join", joining.at, "--group", joining.group, "--patience", std::to_string(joining.patience)};
  if (!joining.key.empty()) words.insert(words.end(), {"--key", joining.key});
  return motley(words);
}

uint16_t listening_port(Program& run, Seconds limit) {
  const std::string before = "127.0.0.1:";
  run.wait_for_log(before, limit);
  const std::string log = run.log();
  return static_cast<uint16_t>(std::atoi(log.c_str() + log.find(before) + before.size()));
}

int64_t updates_of(const std::string& log) {
  const std::string start = "\nupdate ";
  const size_t at = log.rfind(start);
  return at == std::string::npos ? 0 : std::atoll(log.c_str() + at + start.size());
}

void wait_for_updates(Program& run, int64_t further, Seconds limit) {
  const int64_t goal = updates_of(run.log_end()) + further;
  const auto reached = [&] { return updates_of(run.log_end()) >= goal; };
  wait_until(limit, [&] { return reached() || !run.running(); });
  if (!reached())
    throw std::runtime_error("the run has not reached update " + std::to_string(goal) + "; its log:\n" + run.log_end());
}

int interrupt(Program& program, Seconds limit) {
  program.signal(SIGINT);
  return program.wait(limit);
}

Site::Site(int samplers, Network::Rights rights)
    : network_(1 + samplers, rights), address_(run_machine().address() + ":" + std::to_string(kPort)) {
  Program keygen(folder_, "keygen", motley({"keygen", "fleet.key"}));
  if (keygen.wait(Seconds(30)) != 0) throw std::runtime_error("motley keygen: " + keygen.log());
}

std::unique_ptr<Program> Site::start_run(const std::string& name, const std::vector<std::string>& words) const {
  std::vector<std::string> all{"run"};
  all.insert(all.end(), words.begin(), words.end());
  all.insert(all.end(), {"--listen", address_, "--key", "fleet.key"});
  return std::make_unique<Program>(folder_, name, motley(all), &run_machine());
}

std::unique_ptr<Program> Site::start_sampler(const std::string& name, int sampler, const std::string& group,
                                             const std::string& at, int patience) const {
  const Joining joining{.at = at.empty() ? address_ : at, .group = group, .key = "fleet.key", .patience = patience};
  return std::make_unique<Program>(folder_, name, sampler_words(joining), &network_.machine(sampler_machine(sampler)));
}

std::unique_ptr<BadNetwork> Site::start_relay(const std::string& name, int sampler) const {
  const std::vector<uint16_t> ports{kPort, kPort + 1, kPort + 2, kPort + 3};
  return std::make_unique<BadNetwork>(folder_, name, "127.0.0.1", ports, run_machine().address(), ports,
                                      &network_.machine(sampler_machine(sampler)));
}

}  // namespace motley::fleet
