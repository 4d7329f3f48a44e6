#include "actors/evaluator.h"

#include "actors/remote/evaluation_wire.h"
#include "actors/remote/evaluator_seats.h"
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

/// With how far pass@k lies below that of the first profile, where this is another: the deployment gap.
void add_metrics(const std::string& prefix, const EvaluationResult& result, const EvaluationResult* first,
                 algos::Metrics& metrics) {
  for (const auto& [k, pass] : result.pass_at) {
    if (pass.problems == 0) continue;
    metrics[prefix + "pass_at_" + std::to_string(k)] = pass.value;
    if (first && first->pass_at.at(k).problems > 0)
      metrics[prefix + "gap_at_" + std::to_string(k)] = first->pass_at.at(k).value - pass.value;
  }
  metrics[prefix + "failed"] = static_cast<double>(result.failed);
}

/// Absent: nobody is there, or who was is lost, of which the gate says why.
std::optional<algos::Metrics> evaluate_elsewhere(const Fleet& fleet, const Parameters& parameters,
                                                 const Evaluate& asked,
                                                 const std::function<void(const std::string&)>& say) {
  const auto seat = fleet.evaluators ? fleet.evaluators->first() : std::nullopt;
  if (!seat) return std::nullopt;
  try {
    algos::Metrics metrics = evaluate_over(*seat->line, {asked.update, asked.version}, parameters);
    say(seat->name + " has evaluated version " + std::to_string(asked.version));
    return metrics;
  } catch (const LineClosed&) {
  } catch (const WireError& error) {
    seat->line->close_with_cause(std::string("what it sent is not right: ") + error.what());
  }
  fleet.evaluators->leave(seat->line.get());
  return std::nullopt;
}

}  // namespace

algos::Metrics evaluate_version(const Fleet& fleet, const Parameters& parameters, uint64_t version,
                                const std::function<bool()>& stop) {
  const EvalOptions& options = fleet.experiment.eval;
  const EvaluationRequest request{.prompts = options.prompts,
                                  .samples = options.samples,
                                  .max_tokens = fleet.experiment.sampling.max_tokens,
                                  .k = options.k,
                                  .temperature = options.temperature,
                                  .top_p = options.top_p,
                                  .seed = fleet.experiment.seed,
                                  .sets = options.sets,
                                  .threads = fleet.workers()};
  algos::Metrics metrics;
  std::vector<EvaluationResult> first;  // of the first profile
  for (const std::string& name : options.profiles) {
    std::vector<EvaluationResult> results =
        evaluate(quantized(fleet, parameters, name, version), *fleet.tasks, fleet.tokenizer, request, kSlots,
                 [&] { return fleet.stopping.load() || (stop && stop()); });
    if (results.empty()) return {};
    const bool is_first = name == options.profiles.front();
    if (is_first) first = results;
    for (size_t set = 0; set < results.size(); ++set)
      add_metrics("eval/" + (is_first ? "" : name + "/") + (set == 0 ? "" : results[set].set + "/"), results[set],
                  is_first ? nullptr : &first[set], metrics);
  }
  metrics["eval/version"] = static_cast<double>(version);
  return metrics;
}

algos::Metrics evaluate_anywhere(const Fleet& fleet, const Parameters& parameters, const Evaluate& asked,
                                 const std::function<void(const std::string&)>& say) {
  if (auto metrics = evaluate_elsewhere(fleet, parameters, asked, say)) return std::move(*metrics);
  return evaluate_version(fleet, parameters, asked.version);
}

caf::behavior evaluator(caf::event_based_actor* self, FleetPtr fleet, caf::actor supervisor) {
  install_handlers(self);
  return {
      [self, fleet = std::move(fleet), supervisor = std::move(supervisor)](const Evaluate& message,
                                                                           const ParametersPtr& parameters) {
        const auto say = [&](const std::string& text) { self->send(supervisor, Note{text}); };
        auto metrics = std::make_shared<algos::Metrics>(evaluate_anywhere(*fleet, *parameters, message, say));
        self->send(caf::actor_cast<caf::actor>(self->current_sender()), Evaluated{message.update, message.version},
                   MetricsPtr(std::move(metrics)));
      },
  };
}

}  // namespace motley::actors
