// The keys of a FLEET.toml.
#include "actors/policy/placement.h"
#include "app/autoscaler_fields.h"
#include "app/fleet_toml.h"
#include "app/schema_field.h"

namespace motley::app {
namespace {

using P = simulation::FleetPlan;

template <class Ref>
FleetField key(std::string section, std::string name, Ref ref, std::string help) {
  return field<P>(std::move(section), std::move(name), ref, std::move(help));
}
void add(std::vector<FleetField>& to, std::vector<FleetField> more) {
  std::move(more.begin(), more.end(), std::back_inserter(to));
}

std::vector<FleetField> run_keys() {
  return {
      key(
          "", "name", [](P & p, size_t) -> auto& { return p.name; }, "of the fleet")
          .shaped(kNameForm, is_name),
      key(
          "", "seed", [](P & p, size_t) -> auto& { return p.seed; }, "key of every random number")
          .between(0, 9e15),
      key(
          "run", "updates", [](P & p, size_t) -> auto& { return p.run.updates; }, "that are measured")
          .between(1, 1e6),
      key(
          "run", "warmup_updates", [](P & p, size_t) -> auto& { return p.run.warmup_updates; },
          "before them, while the fleet fills up and episodes get out of step")
          .between(0, 1e6),
      key(
          "run", "concurrency", [](P & p, size_t) -> auto& { return p.run.concurrency; },
          "episodes that exist and have not been taken by the learner")
          .between(1, 1e7),
      key(
          "run", "routing", [](P & p, size_t) -> auto& { return p.run.routing; },
          "which sampler an episode goes to; as in an experiment")
          .one_of([] { return actors::routing_names(); }),
      key(
          "run", "max_staleness", [](P & p, size_t) -> auto& { return p.run.max_staleness; },
          "groups with an older sample are dropped; in weight versions")
          .between(0, kMany)
          .defaults_to("no limit"),
      key(
          "learner", "prompts", [](P & p, size_t) -> auto& { return p.learner.prompts; }, "groups per update")
          .between(1, 1e6),
      key(
          "learner", "group_size", [](P & p, size_t) -> auto& { return p.learner.group_size; }, "samples per prompt")
          .between(1, 65536),
      key(
          "learner", "train_seconds", [](P & p, size_t) -> auto& { return p.learner.train_seconds; },
          "of an update, from the batch to the new weights")
          .between(0, kMany),
      key(
          "learner", "publish_seconds", [](P & p, size_t) -> auto& { return p.learner.publish_seconds; },
          "from there until the samplers have the new weights")
          .between(0, kMany),
      key(
          "learner", "close_seconds", [](P & p, size_t) -> auto& { return p.learner.close_seconds; },
          "from there, meanwhile, until the learner looks for the next batch: metrics, a checkpoint")
          .between(0, kMany),
  };
}

std::vector<FleetField> episode_keys() {
  return {
      key(
          "episodes", "turns", [](P & p, size_t) -> auto& { return p.episodes.turns.mean; },
          "of an episode, on average")
          .between(1, 1e6),
      key(
          "episodes", "turns_spread", [](P & p, size_t) -> auto& { return p.episodes.turns.spread; },
          "standard deviation / mean of a log-normal distribution; 0: always the mean")
          .between(0, 100),
      key(
          "episodes", "reply_tokens", [](P & p, size_t) -> auto& { return p.episodes.reply.mean; },
          "drawn in a turn, on average")
          .between(1, kMany),
      key(
          "episodes", "reply_spread", [](P & p, size_t) -> auto& { return p.episodes.reply.spread; }, "as turns_spread")
          .between(0, 100),
      key(
          "episodes", "max_tokens", [](P & p, size_t) -> auto& { return p.episodes.max_tokens; }, "of a reply")
          .between(1, kMany),
      key(
          "episodes", "replies", [](P & p, size_t) -> auto& { return p.episodes.replies; },
          "lengths of measured replies, which are drawn from instead of the distribution")
          .between(1, kMany)
          .repeated()
          .defaults_to("none: the distribution"),
      key(
          "episodes", "prompt_tokens", [](P & p, size_t) -> auto& { return p.episodes.prompt_tokens; },
          "that a sampler computes before the first turn")
          .between(0, kMany),
      key(
          "episodes", "turn_tokens", [](P & p, size_t) -> auto& { return p.episodes.turn_tokens; },
          "that are read between two turns")
          .between(0, kMany),
      key(
          "episodes", "turn_seconds", [](P & p, size_t) -> auto& { return p.episodes.turn_seconds; },
          "of the environment, between two turns")
          .between(0, kMany),
      key(
          "episodes", "score_seconds", [](P & p, size_t) -> auto& { return p.episodes.score_seconds; },
          "from the last token until the learner has the episode")
          .between(0, kMany),
  };
}

std::vector<FleetField> sampler_keys() {
  return {
      key(
          "samplers", "name", [](P & p, size_t i) -> auto& { return p.samplers.at(i).name; }, "of the group")
          .shaped(kNameForm, is_name)
          .defaults_to("none: must be given"),
      key(
          "samplers", "replicas", [](P & p, size_t i) -> auto& { return p.samplers.at(i).replicas; },
          "engines at the start; 0 for a group that is only compared, or only scaled")
          .between(0, 1e5),
      key(
          "samplers", "max_sequences", [](P & p, size_t i) -> auto& { return p.samplers.at(i).max_sequences; },
          "slots of each replica's engine")
          .between(1, 65536),
      key(
          "samplers", "tokens_per_second", [](P & p, size_t i) -> auto& { return p.samplers.at(i).tokens_per_second; },
          "of a replica, all slots full: its capacity")
          .above(0, kMany),
      key(
          "samplers", "alone_tokens_per_second",
          [](P & p, size_t i) -> auto& { return p.samplers.at(i).alone_tokens_per_second; },
          "of one sequence alone; a step's time grows linearly from there to all slots full")
          .above(0, kMany)
          .defaults_to("tokens_per_second / max_sequences: a step takes the same time whatever its batch"),
      key(
          "samplers", "prefill_tokens_per_second",
          [](P & p, size_t i) -> auto& { return p.samplers.at(i).prefill_tokens_per_second; },
          "at which tokens are read, while nothing is drawn")
          .above(0, 1e12)
          .defaults_to("reading costs nothing"),
      key(
          "samplers", "speed_spread", [](P & p, size_t i) -> auto& { return p.samplers.at(i).speed_spread; },
          "standard deviation / mean of the speeds of its replicas")
          .between(0, 10),
      key(
          "samplers", "price_per_hour", [](P & p, size_t i) -> auto& { return p.samplers.at(i).price_per_hour; },
          "of one replica, from its start on")
          .between(0, kMany),
      key(
          "samplers", "capacity", [](P & p, size_t i) -> auto& { return p.samplers.at(i).capacity; },
          "fixed share of the episodes")
          .above(0, kMany)
          .defaults_to("by tokens_per_second"),
      key(
          "samplers", "failures_per_hour", [](P & p, size_t i) -> auto& { return p.samplers.at(i).failures_per_hour; },
          "of a replica: it is lost after an exponential time")
          .between(0, 3600),
      key(
          "samplers", "swap_seconds", [](P & p, size_t i) -> auto& { return p.samplers.at(i).swap_seconds; },
          "for which a replica stands still to take new weights")
          .between(0, 1e7),
  };
}

std::vector<FleetField> compare_keys() {
  return {
      key(
          "compare", "homogeneous", [](P & p, size_t) -> auto& { return p.compare.homogeneous; },
          "groups that are each simulated alone, with the same episodes and without the autoscaler")
          .defaults_to("none"),
      key(
          "compare", "replicas", [](P & p, size_t) -> auto& { return p.compare.replicas; }, "of each of these fleets")
          .between(1, 1e5)
          .defaults_to("as many as have the capacity of the fleet at its start, rounded"),
  };
}

}  // namespace

const std::vector<SectionInfo>& fleet_sections() {
  static const std::vector<SectionInfo> sections{
      {"", "The top of the file."},
      {"run", "How long, and how episodes reach samplers."},
      {"learner", "What is taken for an update, and how long it lasts."},
      {"episodes", "How long they are, and what happens between their turns."},
      {"samplers", "One or more groups of samplers.", true},
      {"autoscaler", "With this section there is one; without it a replica that is lost is replaced."},
      {"compare", "Fleets of one group, to hold this one against."},
  };
  return sections;
}

const std::vector<FleetField>& fleet_fields() {
  static const std::vector<FleetField> fields = [] {
    std::vector<FleetField> all = run_keys();
    add(all, episode_keys());
    add(all, sampler_keys());
    add(all, group_bound_fields<P>());
    add(all, autoscaler_fields<P>());
    add(all, compare_keys());
    return all;
  }();
  return fields;
}

std::string fleet_tables() {
  simulation::FleetPlan defaults;
  defaults.samplers.resize(1);
  std::string text;
  for (const SectionInfo& section : fleet_sections()) {
    std::vector<KeyRow> rows;
    for (const FleetField& field : fleet_fields()) {
      if (field.section != section.name) continue;
      const auto value = field.get(defaults, 0);
      const std::string shown = value ? "`" + value_to_toml(*value) + "`" : "none";
      rows.push_back({field.key, kind_name(field.rule.kind), field.default_note.empty() ? shown : field.default_note,
                      field.rule.allowed(), field.help});
    }
    const std::string title = section.list ? "[[" + section.name + "]]" : "[" + section.name + "]";
    text += key_table(section.name.empty() ? "" : title, section.help, rows);
  }
  return text;
}

}  // namespace motley::app
