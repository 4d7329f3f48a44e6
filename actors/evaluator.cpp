#include "actors/evaluator.h"

#include "actors/system.h"
#include "kernels/parallel.h"

namespace motley::actors {

namespace {

constexpr int64_t kSlots = 256;

std::shared_ptr<const SamplerWeights> quantized(const Fleet& fleet, const Parameters& parameters,
                                                const std::string& profile, uint64_t version) {
  kernels::ComputeClient client(kernels::ComputeSide::sampler);
  const kernels::ComputeLease lease(client);
  return std::make_shared<SamplerWeights>(fleet.model, parameters, fleet.profile(profile), version,
                                          kernels::parse_device(fleet.experiment.eval.device));
}

}  // namespace

algos::Metrics evaluate_version(const Fleet& fleet, const Parameters& parameters, uint64_t version) {
  const EvalOptions& options = fleet.experiment.eval;
  EvaluationRequest request;
  request.prompts = options.prompts;
  request.samples = options.samples;
  request.max_tokens = fleet.experiment.sampling.max_tokens;
  request.k = options.k;
  request.temperature = options.temperature;
  request.top_p = options.top_p;
  request.seed = fleet.experiment.seed;
  algos::Metrics metrics;
  for (const std::string& name : options.profiles) {
    const EvaluationResult result = evaluate(quantized(fleet, parameters, name, version), *fleet.tasks, fleet.tokenizer,
                                             request, kSlots, [&] { return fleet.stopping.load(); });
    if (result.prompts == 0) return {};
    const std::string prefix = name == options.profiles.front() ? "eval/" : "eval/" + name + "/";
    for (const auto& [k, value] : result.pass_at) metrics[prefix + "pass_at_" + std::to_string(k)] = value;
  }
  metrics["eval/version"] = static_cast<double>(version);
  return metrics;
}

caf::behavior evaluator(caf::event_based_actor* self, FleetPtr fleet) {
  install_handlers(self);
  return {
      [self, fleet = std::move(fleet)](const Evaluate& message, const ParametersPtr& parameters) {
        auto metrics = std::make_shared<algos::Metrics>(evaluate_version(*fleet, *parameters, message.version));
        self->send(caf::actor_cast<caf::actor>(self->current_sender()), Evaluated{message.update, message.version},
                   MetricsPtr(std::move(metrics)));
      },
  };
}

}  // namespace motley::actors
