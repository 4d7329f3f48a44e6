#include "actors/remote/evaluation_wire.h"

#include <algorithm>
#include <cmath>

#include "actors/remote/fields.h"

namespace motley::actors {
namespace {

constexpr uint64_t kMostEvaluated = 1'000'000'000;  // as many updates as run.updates allows

/// They go into the run's rows as they are.
void check_evaluation(const algos::Metrics& metrics, const EvaluateHead& head) {
  for (const auto& [name, value] : metrics)
    if (!name.starts_with("eval/") || !std::isfinite(value))
      throw WireError("a metric that no evaluation has: " + name + " = " + std::to_string(value));
  const auto version = metrics.find("eval/version");
  if (version == metrics.end() || version->second != static_cast<double>(head.version))
    throw WireError("an evaluation of another version than " + std::to_string(head.version));
}

}  // namespace

std::string evaluate_body(const EvaluateHead& head) {
  msgpack::sbuffer out;
  MapWriter(out, 2).field("update", head.update).field("version", head.version);
  return {out.data(), out.size()};
}

EvaluateHead parse_evaluate(std::string_view body) {
  const msgpack::object_handle handle = unpack_body(body);
  const Fields fields(handle.get());
  return {.update = fields.number("update", kMostEvaluated), .version = fields.number("version", kMostEvaluated)};
}

algos::Metrics evaluate_over(PeerLine& line, const EvaluateHead& head, const Parameters& weights) {
  line.send(FrameKind::evaluate, evaluate_body(head));
  write_weights(line, weights);
  const auto [kind, body] = line.next();
  if (kind == FrameKind::failed) {
    const std::string cause = parse_text(body);
    line.close_with_cause("it failed: " + cause);
    throw LineClosed(cause);
  }
  if (kind != FrameKind::evaluated)
    throw WireError("a frame of kind " + std::to_string(static_cast<int>(kind)) + ", which nobody asked for");
  TrainedHead answer = parse_trained(body);
  if (answer.update != head.update)
    throw WireError("update " + std::to_string(answer.update) + " where update " + std::to_string(head.update) +
                    " was asked for");
  check_evaluation(answer.metrics, head);
  return std::move(answer.metrics);
}

}  // namespace motley::actors
