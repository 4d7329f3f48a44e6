// config.json of a Hugging Face folder.
#pragma once

#include "tensor/model_file.h"

namespace motley {

std::string config_to_json(const TransformerConfig& config);
/// Throws ModelFileError naming `file` and the field that is missing, wrong, or asks for what the transformer lacks.
TransformerConfig config_from_json(const std::filesystem::path& file, const std::string& text);

}  // namespace motley
