// From a TOML file (and --set arguments) to a checked Experiment, and back. Strict: what is unknown, of a wrong type or
// impossible is an InputError with its position. Nothing is created. Paths are relative to the working directory.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "actors/experiment.h"
#include "app/document.h"

namespace motley::app {

struct ExperimentSource {
  std::filesystem::path file;
  std::vector<std::string> sets;  // "a.b=v", in the order given; a later one wins
  std::string seed;               // as given to --seed; empty: not given
  bool to_run = false;            // devices that this machine does not have are refused
};
Experiment load_experiment(const ExperimentSource& source);

/// Of experiment_to_toml's text from another process, named `source` in messages. Looks at no file and no device.
Experiment parse_experiment(const std::string& text, const std::string& source);

/// Fully resolved: every key that has a value, in schema order, without comments. Loading it gives the same text.
std::string experiment_to_toml(const Experiment& experiment);

/// The value of every key by its dotted path (samplers.0.profile), as TOML.
std::map<std::string, std::string> experiment_values(const Experiment& experiment);

/// A task's options from texts "key=value" (`motley eval --option`), every one resolved.
envs::Options task_options(const std::string& env, const std::vector<std::string>& settings);

/// Where the keys of a document stand, by dotted path: for checks that concern several keys.
class KeyPositions {
 public:
  explicit KeyPositions(std::string file) : file_(std::move(file)) {}
  void set(const std::string& path, const Position& at) { at_[path] = at; }
  bool given(const std::string& path) const { return at_.contains(path); }
  /// Of the key, or else of the nearest table around it, or else of the file's start.
  Position of(std::string path) const;

 private:
  std::string file_;
  std::map<std::string, Position> at_;
};

/// Puts the values of --set and --seed into the document (app/overrides.cpp).
void apply_overrides(Node& document, const ExperimentSource& source);
/// Fills in what depends on other keys, then refuses what cannot work (app/experiment_checks.cpp).
void resolve_experiment(Experiment& experiment, const KeyPositions& keys);
void check_experiment(const Experiment& experiment, const KeyPositions& keys);
/// Refuses files and tasks that this machine does not have, or that do not fit.
void check_data(const Experiment& experiment, const KeyPositions& keys);
/// Refuses devices that this build or machine does not have.
void check_devices(const Experiment& experiment, const KeyPositions& keys);

}  // namespace motley::app
