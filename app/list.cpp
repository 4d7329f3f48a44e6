#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "app/fleet_toml.h"
#include "app/input_error.h"
#include "app/list_corrections.h"
#include "app/recipes.h"
#include "app/schema.h"
#include "envs/environment.h"
#include "kernels/product_body.h"

namespace motley::app {
namespace {

struct Entry {
  std::string name, text;
};

std::vector<Entry> list_recipes() {
  std::vector<Entry> entries;
  for (const Recipe& recipe : recipes()) {
    std::string keys;
    for (const auto& [key, value] : recipe.keys) keys += (keys.empty() ? "" : ", ") + key + " = " + value;
    entries.push_back({recipe.name, recipe.summary + " (" + recipe.source + "); sets " + keys});
  }
  return entries;
}

std::vector<Entry> list_envs() {
  std::vector<Entry> entries;
  for (const envs::TaskInfo& info : envs::tasks()) {
    std::vector<std::string> keys;
    for (const envs::Option& option : info.options) keys.push_back(option.name);
    entries.push_back({info.name, info.summary + (keys.empty() ? "" : "; keys: " + join(keys, ", "))});
  }
  return entries;
}

std::vector<Entry> list_formats() {
  return {
      {"fp32", "IEEE 754 binary32"},
      {"bf16", "1-8-7 bits; rounds to infinity"},
      {"fp16", "1-5-10 bits; rounds to infinity from 65520"},
      {"e4m3", "fp8, 1-4-3 bits; largest 448, saturates"},
      {"e5m2", "fp8, 1-5-2 bits; largest 57344, saturates"},
      {"e2m1", "fp4, 1-2-1 bits; largest 6, saturates"},
      {"ue8m0", "8-bit powers of two: the scales of MX blocks"},
      {"fp8", "e4m3 with fp32 scales: weights in 128x128 blocks, activations per token and 128 inputs"},
      {"mxfp8", "e4m3 in blocks of 32 along the input, ue8m0 scales"},
      {"mxfp4", "e2m1 in blocks of 32 along the input, ue8m0 scales"},
      {"nvfp4",
       "e2m1 in blocks of 16 along the input, e4m3 scales and one fp32 scale; four-over-six picks 6 or 4 a block"},
  };
}

std::vector<Entry> list_profiles() {
  std::vector<Entry> entries;
  for (const kernels::NumericProfile& profile : kernels::profiles()) {
    const kernels::ProductBody body = product_body(profile, {kernels::DeviceKind::cuda, 0});
    entries.push_back({profile.name, kernels::describe(profile) + "; on a device: " + product_body_name(body)});
  }
  entries.push_back({"trainer", "the trainer's own profile (samplers only): the bitwise profile; on a device: chain"});
  return entries;
}

std::vector<Entry> list_models() {
  return {
      {"sizes", "[model] layers, width, heads, kv_heads, ...: a fresh decoder with RoPE, RMSNorm, GQA and SwiGLU"},
      {"checkpoint", "model.path = RUN/checkpoints/step-N: what a run has written"},
      {"llama", "model.path = a Hugging Face folder whose config.json has model_type \"llama\""},
      {"qwen3", "model.path = a Hugging Face folder whose config.json has model_type \"qwen3\" (QK-norm)"},
  };
}

const std::map<std::string, std::vector<Entry> (*)()>& topics() {
  static const std::map<std::string, std::vector<Entry> (*)()> table{{"envs", list_envs},
                                                                     {"formats", list_formats},
                                                                     {"models", list_models},
                                                                     {"profiles", list_profiles},
                                                                     {"recipes", list_recipes}};
  return table;
}

}  // namespace

const std::vector<std::string>& list_topics() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all{"corrections"};
    for (const auto& [name, function] : topics()) all.push_back(name);
    return all;
  }();
  return names;
}

int list_command(const std::string& what, bool json) {
  if (what == "corrections") return list_corrections(json);
  const auto topic = topics().find(what);
  if (topic == topics().end()) {
    throw InputError({"motley list"}, "there is no list of '" + what + "'", "allowed: " + join(list_topics(), ", "),
                     nearest_name(what, list_topics()));
  }
  const std::vector<Entry> entries = topic->second();
  if (json) {
    nlohmann::json list = nlohmann::json::array();
    for (const Entry& entry : entries) list.push_back({{"name", entry.name}, {"text", entry.text}});
    std::printf("%s\n", nlohmann::json{{what, list}}.dump().c_str());
    return 0;
  }
  size_t width = 0;
  for (const Entry& entry : entries) width = std::max(width, entry.name.size());
  for (const Entry& entry : entries)
    std::fputs(fmt::format("{:<{}}  {}\n", entry.name, width, entry.text).c_str(), stdout);
  return 0;
}

int schema_command(const std::string& page) {
  std::fputs((page == "fleet" ? fleet_tables() : schema_page()).c_str(), stdout);
  return 0;
}

}  // namespace motley::app
