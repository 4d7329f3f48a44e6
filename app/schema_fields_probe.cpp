// The keys of [probe].
#include "app/schema_field.h"

namespace motley::app {
namespace {

using E = Experiment;

}  // namespace

std::vector<Field> probe_fields() {
  return {
      field(
          "probe", "staleness_every", [](E & e, size_t) -> auto& { return e.probe.staleness_every; },
          "updates between two separations of mismatch and staleness; 0: none")
          .between(0, kMany),
      field(
          "probe", "staleness_samples", [](E & e, size_t) -> auto& { return e.probe.staleness_samples; },
          "samples of the update that are scored again, once per weight version of their tokens")
          .between(1, 1e6),
      field(
          "probe", "versions", [](E & e, size_t) -> auto& { return e.probe.versions; },
          "weight versions behind the newest that are kept for it, in memory and in checkpoints: 4 bytes a parameter "
          "each")
          .between(1, 1000),
      field(
          "probe", "drift_every", [](E & e, size_t) -> auto& { return e.probe.drift_every; },
          "updates between two measurements of the corrections' drift; 0: none")
          .between(0, kMany),
      field(
          "probe", "drift_samples", [](E & e, size_t) -> auto& { return e.probe.drift_samples; },
          "samples that a drift is measured on, in whole prompts and at least two of them")
          .between(2, 1e6),
      field(
          "probe", "drift", [](E & e, size_t) -> auto& { return e.probe.drift; },
          "the corrections; pieces of the run's own have its parameters, others their defaults"),
  };
}

}  // namespace motley::app
