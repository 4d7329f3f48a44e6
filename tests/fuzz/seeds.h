// Where the corpora begin: bytes that our own encoders make, or that a document states. `make fuzz-seeds` writes them
// anew after a format has changed.
#pragma once

#include <map>
#include <string>

namespace motley::fuzz {

using Seeds = std::map<std::string, std::string>;

Seeds address_seeds();
Seeds archive_seeds();
Seeds audit_problem_seeds();
Seeds config_json_seeds();
Seeds experiment_seeds();
Seeds external_answer_seeds();
Seeds fleet_seeds();
Seeds jsonl_seeds();
/// None: a whole key file in the repository would be a key, and would expire.
Seeds key_file_seeds();
Seeds patch_seeds();
Seeds safetensors_seeds();
Seeds session_frame_seeds();
Seeds tokenizer_seeds();
Seeds tool_call_seeds();
Seeds trajectories_seeds();
Seeds weight_manifest_seeds();
Seeds weight_message_seeds();

}  // namespace motley::fuzz
