#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "app/devices.h"
#include "app/input_error.h"
#include "app/policy.h"

namespace motley::app {
namespace {

struct Sample {
  TokenRecords records;
  FinishReason finish = FinishReason::none;
};

std::vector<int32_t> encode_prompt(const Policy& policy, const std::string& prompt) {
  try {
    std::vector<int32_t> tokens = policy.need_tokenizer().encode(prompt);
    if (tokens.empty()) throw InputError({"--prompt"}, "the prompt is empty", "at least one token is needed");
    return tokens;
  } catch (const std::invalid_argument& error) {
    throw InputError({"--prompt " + prompt}, error.what());
  }
}

std::vector<Sample> decode(const Policy& policy, const GenerateArguments& arguments) {
  Engine engine(policy.weights, {.max_sequences = std::min<int64_t>(arguments.count, 64)});
  GenerateRequest request;
  request.tokens = encode_prompt(policy, arguments.prompt);
  request.max_new_tokens = arguments.max_tokens;
  request.stop_tokens = {policy.need_tokenizer().eos()};
  request.rule = {arguments.temperature, arguments.top_p, static_cast<int32_t>(arguments.top_k)};
  request.vocabulary = policy.need_tokenizer().size();
  std::vector<Sample> samples(static_cast<size_t>(arguments.count));
  for (size_t i = 0; i < samples.size(); ++i) {
    request.id = i;
    request.key = {arguments.seed, kernels::Purpose::generate, i, 0};
    try {
      engine.submit(request);
    } catch (const std::invalid_argument& error) {
      throw InputError({"motley generate"}, error.what());
    }
  }
  while (!engine.idle()) {
    for (const StepOutput& output : engine.step()) {
      Sample& sample = samples[output.id];
      sample.records.append(output.records);
      if (output.finish == FinishReason::failed) throw std::runtime_error("decoding failed: " + output.error);
      if (output.finish != FinishReason::none) sample.finish = output.finish;
    }
  }
  return samples;
}

nlohmann::json to_json(const Policy& policy, const GenerateArguments& arguments, const std::vector<Sample>& samples) {
  nlohmann::json list = nlohmann::json::array();
  for (const Sample& sample : samples) {
    list.push_back({{"text", policy.tokenizer->decode(sample.records.tokens)},
                    {"tokens", sample.records.tokens},
                    {"log_q", sample.records.log_q},
                    {"finish", sample.finish == FinishReason::stop ? "stop" : "length"}});
  }
  return {{"model", policy.folder.string()}, {"profile", arguments.profile}, {"device", arguments.device},
          {"seed", arguments.seed},          {"prompt", arguments.prompt},   {"samples", list}};
}

}  // namespace

int generate_command(const GenerateArguments& arguments) {
  const Policy policy = open_policy(arguments.model, arguments.profile, device_argument(arguments.device));
  const std::vector<Sample> samples = decode(policy, arguments);
  if (arguments.json) {
    const nlohmann::json json = to_json(policy, arguments, samples);  // a text of any bytes: "tokens" has them all
    std::printf("%s\n", json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
    return 0;
  }
  for (const Sample& sample : samples) std::printf("%s\n", policy.tokenizer->decode(sample.records.tokens).c_str());
  return 0;
}

}  // namespace motley::app
