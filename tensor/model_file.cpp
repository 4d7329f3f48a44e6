#include "tensor/model_file.h"

#include <fstream>
#include <iterator>

#include "kernels/pointwise.h"
#include "tensor/config_json.h"

namespace motley {
namespace {

std::string shape_text(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace

void require_regular_file(const std::filesystem::path& file) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(file, error);
  if (!std::filesystem::exists(status)) {
    throw ModelFileError(file.string() + ": cannot be read" + (error ? ": " + error.message() : std::string()));
  }
  if (std::filesystem::is_regular_file(status)) return;
  throw ModelFileError(file.string() + ": is no regular file but a folder, a pipe or a device");
}

std::string read_file(const std::filesystem::path& file) {
  require_regular_file(file);
  std::ifstream in(file, std::ios::binary);
  if (!in) throw ModelFileError(file.string() + ": cannot be read");
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  if (in.bad()) throw ModelFileError(file.string() + ": cannot be read to its end");
  return bytes;
}

void save_model(const std::filesystem::path& folder, const TransformerConfig& config, const Parameters& parameters) {
  TensorFile content;
  content.metadata["format"] = "pt";  // Hugging Face's loader insists on it
  const NoGrad plain_copies;
  for (const std::string& name : parameters.names()) {
    content.tensors.emplace(name, cast(parameters.at(name), DType::f32));
  }
  std::filesystem::create_directories(folder);
  write_tensors(folder / "model.safetensors", content);
  write_file_atomically(folder / "config.json", config_to_json(config));
}

LoadedModel load_model(const std::filesystem::path& folder) {
  const auto weights = folder / "model.safetensors";
  if (!std::filesystem::is_directory(folder)) throw ModelFileError(folder.string() + ": is no folder");
  if (!std::filesystem::exists(weights) && std::filesystem::exists(folder / "model.safetensors.index.json")) {
    throw ModelFileError(folder.string() + ": weights in several files are not supported: merge them into one");
  }
  const auto config_file = folder / "config.json";
  const TransformerConfig config = config_from_json(config_file, read_file(config_file));
  TensorFile content = read_tensors(weights);
  // Every layer has tensors of its own: checked first, since a layout of that many layers is about to be made.
  if (config.layers > static_cast<int64_t>(content.tensors.size())) {
    throw ModelFileError(weights.string() + ": too few tensors for the " + std::to_string(config.layers) +
                         " layers of config.json");
  }
  const auto layout = Parameters::layout(config);
  for (const auto& [name, shape] : layout) {
    const auto found = content.tensors.find(name);
    if (found == content.tensors.end()) throw ModelFileError(weights.string() + ": " + name + " is missing");
    if (found->second.shape() != shape) {
      throw ModelFileError(weights.string() + ": " + name + " has shape " + shape_text(found->second.shape()) +
                           " where config.json asks for " + shape_text(shape));
    }
  }
  LoadedModel model{config, Parameters::zeros(config)};
  for (const auto& [name, shape] : layout) {
    const Tensor& loaded = content.tensors.at(name);
    const Tensor& master = model.parameters.at(name);
    kernels::cpu::convert(master.raw(), DType::f32, loaded.raw(), loaded.dtype(), loaded.numel());
    content.tensors.erase(name);
  }
  if (!content.tensors.empty()) {
    throw ModelFileError(weights.string() + ": " + content.tensors.begin()->first +
                         " is not part of the model that config.json describes");
  }
  return model;
}

}  // namespace motley
