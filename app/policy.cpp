#include "app/policy.h"

#include <algorithm>
#include <thread>

#include "actors/checkpoint.h"
#include "app/schema.h"
#include "kernels/parallel.h"
#include "tensor/model_file.h"

namespace motley::app {
namespace {

void read_tokenizer(Policy& policy) {
  const std::filesystem::path file = policy.folder / "tokenizer.json";
  if (!std::filesystem::exists(file)) {
    policy.tokenizer_problem = "there is no tokenizer.json";
    return;
  }
  try {
    envs::Tokenizer tokenizer = envs::Tokenizer::from_json(read_file(file));
    if (tokenizer.size() > policy.config.vocabulary) {
      throw std::invalid_argument(std::to_string(tokenizer.size()) + " symbols, but the model has a vocabulary of " +
                                  std::to_string(policy.config.vocabulary));
    }
    policy.tokenizer = std::move(tokenizer);
  } catch (const std::exception& error) {
    policy.tokenizer_problem = error.what();
  }
}

}  // namespace

const envs::Tokenizer& Policy::need_tokenizer() const {
  if (tokenizer) return *tokenizer;
  throw InputError({(folder / "tokenizer.json").string()}, tokenizer_problem,
                   "text needs a tokenizer that motley reads; token ids do not");
}

const kernels::NumericProfile& profile_argument(const std::string& option, const std::string& name) {
  const kernels::NumericProfile* profile = kernels::find_profile(name);
  if (profile) return *profile;
  const std::vector<std::string> names = profile_names();
  throw InputError({option + " " + name}, "there is no such profile", "allowed: " + join(names, ", "),
                   nearest_name(name, names));
}

OpenedModel open_model(const std::string& path) {
  kernels::set_compute_threads(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  OpenedModel model;
  model.policy.folder = actors::find_checkpoint(path);
  LoadedModel loaded = load_model(model.policy.folder);
  model.policy.config = loaded.config;
  model.masters = std::move(loaded.parameters);
  read_tokenizer(model.policy);
  return model;
}

Policy open_policy(const std::string& path, const std::string& profile, const kernels::Device& device) {
  const kernels::NumericProfile& numeric = profile_argument("--profile", profile);
  OpenedModel model = open_model(path);
  model.policy.weights = std::make_shared<const SamplerWeights>(model.policy.config, model.masters, numeric, 0, device);
  return std::move(model.policy);
}

}  // namespace motley::app
