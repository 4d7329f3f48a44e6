#include "actors/remote/setting.h"

#include "actors/remote/fields.h"
#include "tensor/config_json.h"

namespace motley::actors {
namespace {

constexpr size_t kMostExperiment = size_t{1} << 20, kMostModel = size_t{1} << 16;  // bytes
constexpr size_t kMostTokenizer = size_t{64} << 20;

}  // namespace

Setting setting_of(const Fleet& fleet) { return {fleet.experiment_text, fleet.model, fleet.tokenizer}; }

std::string setting_body(const Setting& setting) {
  msgpack::sbuffer out;
  MapWriter(out, 3)
      .field("experiment", setting.experiment)
      .field("model", config_to_json(setting.model))
      .field("tokenizer", setting.tokenizer.to_json());
  return {out.data(), out.size()};
}

Setting parse_setting(std::string_view body) {
  const msgpack::object_handle handle = unpack_body(body);
  const Fields fields(handle.get());
  Setting setting{.experiment = std::string(fields.text("experiment", kMostExperiment)), .model = {}, .tokenizer = {}};
  const std::string_view model = fields.text("model", kMostModel), tokenizer = fields.text("tokenizer", kMostTokenizer);
  try {
    setting.model = config_from_json("the run's model", std::string(model)).resolved();
    setting.tokenizer = envs::Tokenizer::from_json(tokenizer);
  } catch (const std::exception& error) {
    throw WireError(std::string("a setting that makes no sense: ") + error.what());
  }
  if (setting.tokenizer.size() > setting.model.vocabulary)
    throw WireError("a tokenizer of " + std::to_string(setting.tokenizer.size()) + " ids for a model of " +
                    std::to_string(setting.model.vocabulary));
  return setting;
}

}  // namespace motley::actors
