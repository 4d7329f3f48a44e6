// A model of the command line's MODEL argument, ready to decode in a numeric profile.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "envs/tokenizer.h"
#include "tensor/engine.h"

namespace motley::app {

struct Policy {
  std::filesystem::path folder;
  TransformerConfig config;
  std::optional<envs::Tokenizer> tokenizer;  // absent: none that can be read
  std::string tokenizer_problem;             // then why
  std::shared_ptr<const SamplerWeights> weights;

  /// Throws InputError with the reason when there is none.
  const envs::Tokenizer& need_tokenizer() const;
};

/// The profile of that name; InputError naming `option` if there is none.
const kernels::NumericProfile& profile_argument(const std::string& option, const std::string& name);

/// A model without a profile yet: the policy has no weights, and `masters` are what those of any profile are made from.
struct OpenedModel {
  Policy policy;
  Parameters masters;
};
/// `path`: a checkpoint, a run folder (its newest checkpoint), or a model folder in the Hugging Face layout. Sets this
/// thread's compute threads to the machine's cores.
OpenedModel open_model(const std::string& path);
/// The same, ready to decode on a device.
Policy open_policy(const std::string& path, const std::string& profile, const kernels::Device& device);

}  // namespace motley::app
