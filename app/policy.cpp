#include "app/policy.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <thread>

#include "actors/checkpoint.h"
#include "app/schema.h"
#include "kernels/parallel.h"
#include "tensor/model_file.h"

namespace motley::app {
namespace {

void read_tokenizer(Policy& policy) {
  std::ifstream in(policy.folder / "tokenizer.json", std::ios::binary);
  if (!in) {
    policy.tokenizer_problem = "there is no tokenizer.json";
    return;
  }
  std::ostringstream text;
  text << in.rdbuf();
  try {
    envs::Tokenizer tokenizer = envs::Tokenizer::from_json(text.str());
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

Policy open_policy(const std::string& path, const std::string& profile) {
  const kernels::NumericProfile* numeric = kernels::find_profile(profile);
  if (!numeric) {
    const std::vector<std::string> names = profile_names();
    throw InputError({"--profile " + profile}, "there is no such profile", "allowed: " + join(names, ", "),
                     nearest_name(profile, names));
  }
  kernels::set_compute_threads(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  Policy policy;
  policy.folder = actors::find_checkpoint(path);
  const LoadedModel model = load_model(policy.folder);
  policy.config = model.config;
  read_tokenizer(policy);
  policy.weights = std::make_shared<const SamplerWeights>(model.config, model.parameters, *numeric, 0);
  return policy;
}

}  // namespace motley::app
