// The learner's small state (the moving baseline) among the texts of a checkpoint.
#pragma once

#include <map>
#include <string>

#include "actors/checkpoint.h"

namespace motley::actors {

inline constexpr const char* kLearnerState = "learner.";  // RunState::extra: prefix of the names of Learner::state()

inline void add_learner_state(RunState& state, const std::map<std::string, std::string>& learner) {
  for (const auto& [name, text] : learner)
    if (!text.empty()) state.extra[kLearnerState + name] = text;
}

inline std::map<std::string, std::string> learner_state(const RunState& state) {
  std::map<std::string, std::string> learner;
  const std::string prefix = kLearnerState;
  for (const auto& [name, text] : state.extra)
    if (name.starts_with(prefix)) learner[name.substr(prefix.size())] = text;
  return learner;
}

}  // namespace motley::actors
