#include "actors/checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

namespace motley::actors {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

void sync_folder(const fs::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

/// N of "step-N"; nothing for any other name, a partial write included.
std::optional<uint64_t> step_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  if (name.rfind("step-", 0) != 0 || name.size() == 5 || name.size() > 5 + 18) return std::nullopt;
  if (!std::all_of(name.begin() + 5, name.end(), [](unsigned char c) { return std::isdigit(c) != 0; }))
    return std::nullopt;
  return std::stoull(name.substr(5));
}

std::string state_json(const AdamW::State* optimizer, const RunState* state) {
  json out;
  if (optimizer) {
    // Doubles as hexadecimal text: they come back bit for bit, infinities included.
    for (const auto& [name, value] : optimizer->numbers) {
      char text[64];
      std::snprintf(text, sizeof text, "%a", value);
      out["optimizer"][name] = text;
    }
  }
  if (state) {
    out["run"] = {{"version", state->version}, {"next_prompt", state->next_prompt}, {"attempt", state->attempt}};
    for (const auto& [name, value] : state->extra) out["run"]["extra"][name] = value;
  }
  return out.dump(2) + "\n";
}

uint64_t whole_number(const json& run, const char* key, uint64_t most) {
  const json& value = run.at(key);
  if (!value.is_number_unsigned() || value.get<uint64_t>() > most)
    throw std::runtime_error(std::string("state.json: ") + key + " is no whole number of at most " +
                             std::to_string(most) + ": " + value.dump());
  return value.get<uint64_t>();
}

double optimizer_number(const std::string& name, const json& value) {
  const std::string text = value.get<std::string>();
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (text.empty() || end != text.c_str() + text.size())
    throw std::runtime_error("state.json: " + name + " is no number: \"" + text + "\"");
  return number;
}

RunState run_state(const json& run) {
  RunState state;
  state.version = whole_number(run, "version", 1'000'000'000);  // as many as run.updates allows
  state.next_prompt = whole_number(run, "next_prompt", uint64_t{1} << 53);
  state.attempt = static_cast<uint32_t>(whole_number(run, "attempt", INT32_MAX));
  if (run.contains("extra")) state.extra = run.at("extra").get<std::map<std::string, std::string>>();
  return state;
}

}  // namespace

fs::path save_checkpoint(const fs::path& run_folder, const TransformerConfig& config, const Parameters& parameters,
                         const envs::Tokenizer& tokenizer, const AdamW::State* optimizer, const RunState* state,
                         uint64_t step) {
  const fs::path parent = run_folder / "checkpoints";
  fs::path target = parent / ("step-" + std::to_string(step));
  const fs::path partial = parent / (".step-" + std::to_string(step) + ".partial");
  fs::create_directories(parent);
  for (const auto& entry : fs::directory_iterator(parent))
    if (entry.path().extension() == ".partial") fs::remove_all(entry.path());
  fs::create_directory(partial);
  save_model(partial, config, parameters);
  write_file_atomically(partial / "tokenizer.json", tokenizer.to_json());
  if (optimizer) write_tensors(partial / "optimizer.safetensors", {optimizer->tensors, {}});
  if (optimizer || state) write_file_atomically(partial / "state.json", state_json(optimizer, state));
  sync_folder(partial);
  if (fs::exists(target)) {
    // A resumed run reaches this step again: the two folders change places in one step, so that one is always there.
    if (::renameat2(AT_FDCWD, partial.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) != 0)
      throw std::runtime_error(target.string() + ": " + std::strerror(errno));
    fs::remove_all(partial);
  } else {
    fs::rename(partial, target);
  }
  sync_folder(parent);
  return target;
}

Checkpoint load_checkpoint(const fs::path& folder) {
  if (!fs::is_directory(folder)) throw CheckpointError(folder.string() + ": no such folder");
  try {
    LoadedModel model = load_model(folder);
    Checkpoint checkpoint{model.config, std::move(model.parameters), {}, {}, {}};
    checkpoint.tokenizer = envs::Tokenizer::from_json(read_file(folder / "tokenizer.json"));
    if (checkpoint.tokenizer.size() > checkpoint.config.vocabulary)
      throw std::runtime_error("tokenizer.json has " + std::to_string(checkpoint.tokenizer.size()) +
                               " symbols, but the model a vocabulary of " +
                               std::to_string(checkpoint.config.vocabulary));
    if (!fs::exists(folder / "state.json")) return checkpoint;
    const json state = json::parse(read_file(folder / "state.json"), nullptr, false);
    if (!state.is_object()) throw std::runtime_error("state.json is no JSON object; it may be cut short");
    if (state.contains("run")) checkpoint.state = run_state(state.at("run"));
    if (state.contains("optimizer")) {
      AdamW::State optimizer{read_tensors(folder / "optimizer.safetensors").tensors, {}};
      for (const auto& [name, value] : state.at("optimizer").items())
        optimizer.numbers[name] = optimizer_number(name, value);
      checkpoint.optimizer = std::move(optimizer);
    }
    return checkpoint;
  } catch (const CheckpointError&) {
    throw;
  } catch (const std::exception& error) {
    throw CheckpointError("checkpoint " + folder.string() + " cannot be used: " + error.what());
  }
}

fs::path find_checkpoint(const fs::path& path) {
  if (fs::exists(path / "model.safetensors")) return path;
  std::optional<uint64_t> newest;
  if (fs::is_directory(path / "checkpoints"))
    for (const auto& entry : fs::directory_iterator(path / "checkpoints"))
      if (const auto step = step_of(entry.path()); step && (!newest || *step > *newest)) newest = step;
  if (!newest) throw CheckpointError(path.string() + ": no checkpoint there (looked for checkpoints/step-N)");
  return path / "checkpoints" / ("step-" + std::to_string(*newest));
}

}  // namespace motley::actors
