// What a worker, a learner or an evaluator in another process needs to know of the run: the first frame that it gets.
// Bytes from the network are untrusted, as in actors/remote/wire.h.
#pragma once

#include <string>
#include <string_view>

#include "actors/fleet.h"

namespace motley::actors {

struct Setting {
  std::string experiment;     // the resolved TOML, the seed in it
  TransformerConfig model;    // resolved
  envs::Tokenizer tokenizer;  // with at most model.vocabulary ids
};

Setting setting_of(const Fleet& fleet);
/// msgpack: experiment, model (config.json), tokenizer (tokenizer.json).
std::string setting_body(const Setting& setting);
/// Throws WireError.
Setting parse_setting(std::string_view body);

}  // namespace motley::actors
