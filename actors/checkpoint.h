// Checkpoints: <run>/checkpoints/step-N/ in the Hugging Face layout (model.safetensors, config.json, tokenizer.json),
// with the optimizer's state (optimizer.safetensors) and the run's counters (state.json) beside them. A folder is
// complete or absent: it is written as .step-N.partial, synced and renamed.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "envs/tokenizer.h"
#include "tensor/model_file.h"
#include "tensor/optimizer.h"

namespace motley::actors {

/// A checkpoint or run folder that cannot be used, with its path and the reason: the user's input.
class CheckpointError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What a resume needs besides weights and optimizer. Text values keep 64-bit integers exact.
struct RunState {
  uint64_t version = 0;      // weight version = batches stepped
  uint64_t next_prompt = 0;  // prompts issued and consumed: the next training prompt's number
  uint32_t attempt = 0;      // of sessions drawn after the resume
  std::map<std::string, std::string> extra;
};
struct Checkpoint {
  TransformerConfig config;
  Parameters parameters;
  envs::Tokenizer tokenizer;
  std::optional<AdamW::State> optimizer;  // absent in a model-only folder
  std::optional<RunState> state;
};

/// Returns the folder written. Removes leftovers of writes that were cut short.
std::filesystem::path save_checkpoint(const std::filesystem::path& run_folder, const TransformerConfig& config,
                                      const Parameters& parameters, const envs::Tokenizer& tokenizer,
                                      const AdamW::State* optimizer, const RunState* state, uint64_t step);
/// `folder`: a checkpoint folder itself.
Checkpoint load_checkpoint(const std::filesystem::path& folder);
/// The newest complete checkpoint of a run folder, or `path` itself when it is a checkpoint. CheckpointError if none.
std::filesystem::path find_checkpoint(const std::filesystem::path& path);

}  // namespace motley::actors
