#include "tensor/config_json.h"

#include <nlohmann/json.hpp>

namespace motley {
namespace {

using nlohmann::json;

class ConfigReader {
 public:
  ConfigReader(const std::filesystem::path& file, const std::string& text) : path_(file) {
    try {
      config_ = json::parse(text);
    } catch (const json::exception& error) {
      fail(std::string("is broken: ") + error.what());
    }
    if (!config_.is_object()) fail("is no JSON object");
  }

  TransformerConfig read() const {
    const std::string type = text("model_type", "");
    if (type != "llama" && type != "qwen3") fail("model_type is \"" + type + "\"; llama and qwen3 can be loaded");
    refuse_unsupported();
    TransformerConfig config;
    config.qk_norm = type == "qwen3";
    config.vocabulary = integer("vocab_size");
    config.layers = integer("num_hidden_layers");
    config.width = integer("hidden_size");
    config.heads = integer("num_attention_heads");
    config.kv_heads = integer("num_key_value_heads", config.heads);
    config.head_dim = integer("head_dim", 0);
    config.ffn = integer("intermediate_size");
    config.rope_theta = rope_theta();
    config.norm_eps = number(config_, "rms_norm_eps", 1e-6);
    config.tied_head = boolean("tie_word_embeddings", false);
    config.max_positions = integer("max_position_embeddings");
    constexpr int64_t kMostPositions = 1 << 20;  // tables of that many rows are made at once
    if (config.max_positions > kMostPositions) {
      fail("max_position_embeddings is " + std::to_string(config.max_positions) + "; at most " +
           std::to_string(kMostPositions) + " are supported");
    }
    if (config.ffn == 0) fail("intermediate_size must be at least 1");
    try {
      return config.resolved();
    } catch (const std::invalid_argument& error) {
      fail(error.what());
    }
  }

 private:
  [[noreturn]] void fail(const std::string& reason) const { throw ModelFileError(path_.string() + ": " + reason); }

  bool absent(const json& object, const char* field) const {
    return !object.contains(field) || object[field].is_null();
  }
  /// Sizes fit 32 bits, so that their products fit 64.
  int64_t integer(const char* field) const {
    if (absent(config_, field)) fail(std::string(field) + " is missing");
    const json& value = config_[field];
    if (!value.is_number_unsigned() || value.get<uint64_t>() > INT32_MAX) {
      fail(std::string(field) + " must be an integer from 0 on: got " + value.dump());
    }
    return static_cast<int64_t>(value.get<uint64_t>());
  }
  int64_t integer(const char* field, int64_t otherwise) const {
    return absent(config_, field) ? otherwise : integer(field);
  }
  double number(const json& object, const char* field, double otherwise) const {
    if (absent(object, field)) return otherwise;
    if (!object[field].is_number()) fail(std::string(field) + " must be a number: got " + object[field].dump());
    return object[field].get<double>();
  }
  bool boolean(const char* field, bool otherwise) const {
    if (absent(config_, field)) return otherwise;
    if (!config_[field].is_boolean()) fail(std::string(field) + " must be true or false: got " + config_[field].dump());
    return config_[field].get<bool>();
  }
  std::string text(const char* field, const char* otherwise) const {
    if (absent(config_, field)) return otherwise;
    if (!config_[field].is_string()) fail(std::string(field) + " must be text: got " + config_[field].dump());
    return config_[field].get<std::string>();
  }

  /// What would silently give other numbers is refused.
  void refuse_unsupported() const {
    if (!absent(config_, "rope_scaling")) fail("rope_scaling is not supported: " + config_["rope_scaling"].dump());
    for (const char* field : {"attention_bias", "mlp_bias", "use_sliding_window"}) {
      if (boolean(field, false)) fail(std::string(field) + " = true is not supported");
    }
    const std::string activation = text("hidden_act", "silu");
    if (activation != "silu") fail("hidden_act is \"" + activation + "\"; silu is supported");
  }

  /// A field of its own, or, in newer files, inside rope_parameters.
  double rope_theta() const {
    if (absent(config_, "rope_parameters")) return number(config_, "rope_theta", 10000.0);
    const json& parameters = config_["rope_parameters"];
    if (!parameters.is_object()) fail("rope_parameters must be an object: got " + parameters.dump());
    if (!absent(parameters, "rope_type") && parameters["rope_type"] != "default") {
      fail("rope_type " + parameters["rope_type"].dump() + " is not supported");
    }
    return number(parameters, "rope_theta", number(config_, "rope_theta", 10000.0));
  }

  std::filesystem::path path_;
  json config_;
};

}  // namespace

std::string config_to_json(const TransformerConfig& given) {
  const TransformerConfig config = given.resolved();
  json out = {
      {"model_type", config.qk_norm ? "qwen3" : "llama"},
      {"architectures", {config.qk_norm ? "Qwen3ForCausalLM" : "LlamaForCausalLM"}},
      {"hidden_act", "silu"},
      {"hidden_size", config.width},
      {"intermediate_size", config.ffn},
      {"num_hidden_layers", config.layers},
      {"num_attention_heads", config.heads},
      {"num_key_value_heads", config.kv_heads},
      {"head_dim", config.head_dim},
      {"rms_norm_eps", config.norm_eps},
      {"rope_theta", config.rope_theta},
      {"tie_word_embeddings", config.tied_head},
      {"vocab_size", config.vocabulary},
      {"max_position_embeddings", config.max_positions},
      {"attention_bias", false},
      {"torch_dtype", "float32"},
  };
  return out.dump(2) + "\n";
}

TransformerConfig config_from_json(const std::filesystem::path& file, const std::string& text) {
  return ConfigReader(file, text).read();
}

}  // namespace motley
