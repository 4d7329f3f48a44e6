// The mixed pass: with everything assigned to one profile it is that profile, bit for bit; with one operation switched
// it differs from the trainer in that operation alone.
#include <catch2/catch.hpp>

#include "algos/mismatch/responses.h"
#include "tests/tensor/engine_fixture.h"

namespace motley::algos::mismatch {
namespace {

using namespace motley::test;

const kernels::NumericProfile& preset(const std::string& name) { return *kernels::find_profile(name); }

RopeTable table_of(const TransformerConfig& config) {
  return {config.max_positions, config.head_dim, config.rope_theta, DType::f32};
}

std::vector<std::vector<int32_t>> prompts_of(const Model& model) {
  std::vector<std::vector<int32_t>> prompts;
  for (const GenerateRequest& request : seven_requests(1, model.config.vocabulary, {})) {
    prompts.push_back(request.tokens);
  }
  return prompts;
}

Responses draw(const Model& model, const kernels::NumericProfile& profile, Drawing drawing = {}) {
  drawing.responses = 9;
  drawing.length = 12;
  return draw_responses(sampler_weights(model, profile), prompts_of(model), drawing);
}

/// log q of the drawn tokens by the mixed pass with everything assigned to one side.
std::vector<float> log_probs(const Model& model, const kernels::NumericProfile& profile, const Responses& responses,
                             bool as_sampler) {
  const kernels::NumericProfile& other = preset(profile.name == "fp16" ? "bf16" : "fp16");
  MixedWeights weights(model.config, model.parameters, as_sampler ? profile : other, as_sampler ? other : profile);
  Assignment assignment(model.config.layers);
  if (as_sampler) assignment.give_all();
  const RopeTable table = table_of(model.config);
  const HeadInput scored = score_responses(weights, assignment, table, responses);
  std::vector<float> result;
  for (const TokenGap& gap :
       compare_tokens(scored, scored, responses.ids, responses.vocabulary, responses.temperature)) {
    result.push_back(gap.log_q);
  }
  return result;
}

}  // namespace

TEST_CASE("the mixed pass of one profile gives the bits that its engine recorded", "[mismatch]") {
  uint64_t seed = 60;
  for (const TransformerConfig& config : {grouped_tied(), odd_untied(), even_normed()}) {
    const Model model = make_model(config, ++seed);
    for (const kernels::NumericProfile& profile : kernels::profiles()) {
      INFO(profile.name << ", vocabulary " << config.vocabulary);
      Drawing drawing;
      drawing.temperature = seed % 2 == 0 ? 1.0 : 0.7;
      drawing.vocabulary = config.vocabulary - static_cast<int64_t>(seed % 2);
      const Responses responses = draw(model, profile, drawing);
      REQUIRE(responses.tokens() == 9 * 12);
      CHECK(bits(log_probs(model, profile, responses, true)) == bits(responses.log_q));
      CHECK(bits(log_probs(model, profile, responses, false)) == bits(responses.log_q));
    }
  }
}

TEST_CASE("the trainer's own pass has the bits of the mixed pass", "[mismatch]") {
  const Model model = make_model(even_normed(), 71);
  for (const char* name : {"fp32", "bf16", "fp16"}) {
    const kernels::NumericProfile& profile = preset(name);
    const Responses responses = draw(model, profile);
    const NoGrad no_grad;
    const RopeTable table = table_of(model.config);
    TrainerContext context(model.config, model.parameters, profile, table);
    PackedSequences packed;
    std::vector<int64_t> rows;
    auto query = std::make_shared<HeadQuery>();
    query->selected_offsets = {0};
    for (size_t s = 0; s < responses.sequences.size(); ++s) {
      const int64_t first = packed.starts.back() + responses.prompt_tokens[s] - 1;
      packed.append(responses.sequences[s]);
      for (int64_t t = responses.offsets[s]; t < responses.offsets[s + 1]; ++t) {
        rows.push_back(first + t - responses.offsets[s]);
        query->selected_ids.push_back(responses.ids[static_cast<size_t>(t)]);
        query->selected_offsets.push_back(static_cast<int64_t>(query->selected_ids.size()));
      }
    }
    const Tensor hidden = gather_rows(trainer_hidden(model.config, context, packed), rows);
    const HeadResult head = selected_log_probs(hidden, context.parameter(head_weight_name(model.config)), query);
    CHECK(bits(log_probs(model, profile, responses, false)) == bits(head.log_p.span<float>()));
  }
}

TEST_CASE("every rounding has an owner: operations that a profile leaves alone change no bit", "[mismatch]") {
  const Model model = make_model(even_normed(), 72);
  const RopeTable table = table_of(model.config);
  const Responses responses = draw(model, preset("bf16"));
  for (const auto& [sampler, trainer] :
       std::vector<std::pair<const char*, const char*>>{{"bf16", "fp32"},
                                                        {"a100-bf16", "bf16"},
                                                        {"h100-fp8", "bf16"},
                                                        {"b200-nvfp4-w4a4", "h100-fp8"},
                                                        {"h100-fp8-channel-accumulate14", "h100-fp8"}}) {
    MixedWeights weights(model.config, model.parameters, preset(sampler), preset(trainer));
    const Tensor base = score_responses(weights, Assignment(model.config.layers), table, responses).hidden;
    for (const Operation operation : operations()) {
      INFO(sampler << " against " << trainer << ": " << operation_name(operation));
      Assignment assignment(model.config.layers);
      assignment.give(operation);
      const HeadInput scored = score_responses(weights, assignment, table, responses);
      const bool differing = differs(operation, preset(sampler), preset(trainer));
      if (operation == Operation::head) {  // acts on logits, not on hidden states
        const Tensor before = mixed_head(weights, Assignment(model.config.layers));
        CHECK((bits(scored.weight.span<float>()) != bits(before.span<float>())) == differing);
        continue;
      }
      const bool changed = bits(scored.hidden.span<float>()) != bits(base.span<float>());
      // Products here are shorter than chains of 128, and block scales imply an order of their own.
      const bool no_chance = operation == Operation::reduction_order && std::string(sampler) != "a100-bf16";
      if (!no_chance) CHECK(changed == differing);
    }
  }
}

TEST_CASE("responses depend on seed and number alone", "[mismatch]") {
  const Model model = make_model(grouped_tied(), 73);
  const auto weights = sampler_weights(model, preset("fp8"));
  const auto prompts = prompts_of(model);
  Drawing drawing;
  drawing.length = 5;
  drawing.responses = 20;
  const Responses many = draw_responses(weights, prompts, drawing);
  drawing.responses = 3;
  const Responses few = draw_responses(weights, prompts, drawing);
  REQUIRE(few.count() == 3);
  for (size_t s = 0; s < 3; ++s) CHECK(few.sequences[s] == many.sequences[s]);
  CHECK(many.sequences[0] != many.sequences[7]);  // the same prompt again, another response
  CHECK(many.sequences[0][0] == many.sequences[7][0]);
  drawing.stop_tokens = {many.ids[1]};
  const Responses stopped = draw_responses(weights, prompts, drawing);
  CHECK(stopped.offsets[1] <= 2);
}

TEST_CASE("prompts that cannot be decoded are refused", "[mismatch]") {
  const Model model = make_model(grouped_tied(), 74);
  const auto weights = sampler_weights(model, preset("fp32"));
  CHECK_THROWS_AS(draw_responses(weights, {}, {}), std::invalid_argument);
  CHECK_THROWS_AS(draw_responses(weights, {{}}, {}), std::invalid_argument);
  CHECK_THROWS_AS(draw_responses(weights, {{1, 11}}, {}), std::invalid_argument);
  CHECK_THROWS_AS(draw_responses(weights, {std::vector<int32_t>(160, 1)}, {}), std::invalid_argument);
  Drawing cold;
  cold.temperature = 0.0;
  CHECK_THROWS_AS(draw_responses(weights, {{1}}, cold), std::invalid_argument);
  kernels::NumericProfile exact;
  exact.output = DType::f64;
  CHECK_THROWS_AS(MixedWeights(model.config, model.parameters, exact, preset("fp32")), std::invalid_argument);
}

}  // namespace motley::algos::mismatch
