#include "actors/reference_policy.h"

#include "tensor/model_file.h"

namespace motley::actors {
namespace {

namespace fs = std::filesystem;

fs::path reference_folder(const Fleet& fleet) { return fleet.folder / "reference"; }

Parameters named_reference(const Fleet& fleet) {
  const fs::path folder = find_checkpoint(fleet.experiment.algo.reference);
  Checkpoint checkpoint = load_checkpoint(folder);
  if (checkpoint.config.resolved() != fleet.model)
    throw CheckpointError(folder.string() + ": a model of other sizes than the run's, so no reference for it");
  if (checkpoint.tokenizer != fleet.tokenizer)
    throw CheckpointError(folder.string() + ": its tokenizer is not the run's, so it is no reference for it");
  return std::move(checkpoint.parameters);
}

}  // namespace

std::shared_ptr<const Parameters> fresh_reference(const Fleet& fleet, const Parameters& start) {
  auto reference = std::make_shared<const Parameters>(fleet.experiment.algo.reference.empty() ? start.clone()
                                                                                              : named_reference(fleet));
  const fs::path folder = reference_folder(fleet);
  const fs::path partial = fleet.folder / ".reference.partial";
  fs::remove_all(partial);
  fs::create_directories(partial);
  save_model(partial, fleet.model, *reference);
  fs::remove_all(folder);
  fs::rename(partial, folder);
  return reference;
}

std::shared_ptr<const Parameters> resumed_reference(const Fleet& fleet) {
  const fs::path folder = reference_folder(fleet);
  try {
    LoadedModel model = load_model(folder);
    if (model.config.resolved() != fleet.model) throw std::runtime_error("a model of other sizes than the run's");
    return std::make_shared<const Parameters>(std::move(model.parameters));
  } catch (const std::exception& error) {
    throw CheckpointError(folder.string() + ": the run's reference policy cannot be used: " + error.what());
  }
}

}  // namespace motley::actors
