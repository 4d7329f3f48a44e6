// Rewards by a program of the user's: it gets an episode as JSON on its stdin and prints a number.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace motley::envs {

/// The program gave no reward: how it ended, and the last line of its stderr.
class RewardProgramError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Thread-safe: each call starts a process of its own, with the user's rights and environment, in motley's folder.
class RewardProgram {
 public:
  /// `command`: for `sh -c`. The episode never becomes part of it.
  RewardProgram(std::string command, double seconds) : command_(std::move(command)), seconds_(seconds) {}
  /// Gives the program `json`, and its number: from 0 to 1. Blocks for at most the seconds; then, and in any case at
  /// the end, what is left of the process and of its children (its process group) is killed. Throws RewardProgramError.
  double score(std::string_view json) const;

 private:
  std::string command_;
  double seconds_;
};

}  // namespace motley::envs
