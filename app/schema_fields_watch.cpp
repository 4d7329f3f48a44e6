// The keys of [watch].
#include "app/schema_field.h"

namespace motley::app {
namespace {

using E = Experiment;

Field action(const char* name, std::string actors::WatchOptions::*which) {
  return field(
             "watch", name, [which](E & e, size_t) -> auto& { return e.watch.*which; },
             "what the alarm of this name does when it is raised")
      .one_of([] {
        return std::vector<std::string>{"off", "warn", "checkpoint", "stop"};
      });
}

}  // namespace

std::vector<Field> watch_fields() {
  using W = actors::WatchOptions;
  return {
      field(
          "watch", "window", [](E & e, size_t) -> auto& { return e.watch.window; },
          "updates that a level, or a present value, is taken over")
          .between(2, 1000),
      action("reward", &W::reward),
      field(
          "watch", "reward_drop", [](E & e, size_t) -> auto& { return e.watch.reward_drop; },
          "share of the best window's mean reward that may be lost")
          .above(0, kMany),
      action("kl", &W::kl),
      field(
          "watch", "kl_factor", [](E & e, size_t) -> auto& { return e.watch.kl_factor; },
          "kl/k3 may grow by, from its level at full age")
          .above(1, kMany),
      action("format_error", &W::format_error),
      field(
          "watch", "format_error_share", [](E & e, size_t) -> auto& { return e.watch.format_error_share; },
          "of the samples")
          .below(0, 1),
      action("grad_norm", &W::grad_norm),
      field(
          "watch", "grad_norm_factor", [](E & e, size_t) -> auto& { return e.watch.grad_norm_factor; },
          "grad_norm may leap by, from its highest level so far")
          .above(1, kMany),
      action("tail_ratio", &W::tail_ratio),
      field(
          "watch", "tail_ratio_factor", [](E & e, size_t) -> auto& { return e.watch.tail_ratio_factor; },
          "between the tail masses of sampler and trainer, either way")
          .above(1, kMany),
  };
}

}  // namespace motley::app
