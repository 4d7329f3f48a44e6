// Models on disk in the Hugging Face layout: model.safetensors + config.json (+ tokenizer.json, written by envs).
// Untrusted bytes: every offset and size is checked. A write is complete or absent (write beside, sync, rename).
#pragma once

#include <filesystem>
#include <map>

#include "tensor/transformer.h"

namespace motley {

/// A file that cannot be used, with its path and the reason.
class ModelFileError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// safetensors: names to tensors (F32, F64, BF16, F16), with string metadata.
struct TensorFile {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> metadata;
};
/// From any device; `read_tensors` gives tensors of the CPU.
void write_tensors(const std::filesystem::path& file, const TensorFile& content);
TensorFile read_tensors(const std::filesystem::path& file);

/// All bytes of a file. ModelFileError for what cannot be read, and for what is no regular file: a pipe would be waited
/// for, and a device may never end.
std::string read_file(const std::filesystem::path& file);
/// The same errors, before a file is opened piece by piece.
void require_regular_file(const std::filesystem::path& file);

/// Bytes to a file, never over a pipe or device: written beside, synced, renamed. std::runtime_error: path and reason.
void write_file_atomically(const std::filesystem::path& file, std::string_view bytes);

void save_model(const std::filesystem::path& folder, const TransformerConfig& config, const Parameters& parameters);
struct LoadedModel {
  TransformerConfig config;
  Parameters parameters;  // f32 masters
};
/// Reads config.json ("llama" or "qwen3") and model.safetensors; a missing or extra tensor or a wrong shape is an
/// error.
LoadedModel load_model(const std::filesystem::path& folder);

}  // namespace motley
