#include "actors/weight_history.h"

#include <algorithm>

namespace motley::actors {
namespace {

std::string tensor_name(size_t age, const std::string& parameter) {
  return "history." + std::to_string(age) + "/" + parameter;
}

}  // namespace

void add_history(AdamW::State& state, const std::vector<std::shared_ptr<const Parameters>>& history) {
  for (size_t i = 0; i < history.size(); ++i)
    for (const std::string& name : history[i]->names())
      state.tensors[tensor_name(history.size() - i, name)] = history[i]->at(name);
}

std::vector<std::shared_ptr<const Parameters>> take_history(AdamW::State& state, const TransformerConfig& config) {
  std::vector<std::shared_ptr<const Parameters>> history;
  for (size_t age = 1; state.tensors.contains(tensor_name(age, Parameters::layout(config).front().first)); ++age) {
    auto parameters = std::make_shared<Parameters>(Parameters::zeros(config));
    for (const std::string& name : parameters->names()) {
      auto found = state.tensors.extract(tensor_name(age, name));
      if (found.empty() || found.mapped().shape() != parameters->at(name).shape())
        throw std::runtime_error("the checkpoint's weight history does not fit: " + tensor_name(age, name));
      parameters->at(name) = std::move(found.mapped());
    }
    history.insert(history.begin(), std::move(parameters));
  }
  return history;
}

}  // namespace motley::actors
