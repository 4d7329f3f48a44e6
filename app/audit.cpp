// motley audit: every correction against the exact gradient, on problems that are enumerated (algos/audit/).
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "algos/audit/make_problem.h"
#include "app/audit_problem.h"
#include "app/audit_report.h"
#include "app/commands.h"
#include "app/input_error.h"
#include "app/output_file.h"
#include "tensor/model_file.h"

namespace motley::app {
namespace {

using namespace algos::audit;

/// From rounding alone to where sequence weights fall apart.
const std::vector<std::string> kLadder{"fp8", "nvfp4", "nvfp4+stale=8", "nvfp4+stale=16", "nvfp4+stale=16+noise=0.5"};

struct Rule {
  std::string name;
  std::unique_ptr<algos::Correction> correction;
};

/// Every piece alone, and centered where that can be.
std::vector<std::string> all_names() {
  std::set<std::string> names;
  for (const algos::CorrectionInfo& info : algos::corrections()) {
    names.insert(info.name);
    const std::string centered = "sc+" + info.name;
    try {
      algos::make_correction(centered);
      names.insert(centered);
    } catch (const std::invalid_argument&) {  // centering itself, and weights that it cannot center
    }
  }
  return {names.begin(), names.end()};
}

/// key=value of --set.
struct Setting {
  std::string key, value;
  bool used = false;
};

std::vector<Setting> settings_of(const std::vector<std::string>& sets) {
  std::vector<Setting> settings;
  for (const std::string& set : sets) {
    const size_t equals = set.find('=');
    if (equals == std::string::npos) throw InputError({"motley audit --set"}, "'" + set + "' is not KEY=VALUE");
    settings.push_back({set.substr(0, equals), set.substr(equals + 1)});
  }
  return settings;
}

/// Those settings that a correction has a parameter for.
algos::CorrectionParameters parameters_of(const std::string& name, std::vector<Setting>& settings) {
  algos::CorrectionParameters parameters;
  const std::vector<const algos::CorrectionInfo*> pieces = algos::correction_pieces(name);
  for (Setting& setting : settings) {
    if (!algos::find_parameter(pieces, setting.key)) continue;
    setting.used = true;
    double number = 0.0;
    const char* const end = setting.value.data() + setting.value.size();
    const auto [rest, error] = std::from_chars(setting.value.data(), end, number);
    const bool is_number = error == std::errc() && rest == end && !setting.value.empty();
    parameters[setting.key] = is_number ? algos::ParameterValue(number) : algos::ParameterValue(setting.value);
  }
  return parameters;
}

std::vector<Rule> rules_of(const AuditArguments& arguments) {
  std::vector<Setting> settings = settings_of(arguments.sets);
  std::vector<Rule> rules;
  try {
    for (const std::string& name : arguments.corrections.empty() ? all_names() : arguments.corrections) {
      rules.push_back({name, algos::make_correction(name, parameters_of(name, settings))});
    }
  } catch (const std::invalid_argument& error) {
    throw InputError({"motley audit"}, error.what());
  }
  for (const Setting& setting : settings) {
    if (!setting.used) {
      throw InputError({"motley audit --set"}, "no correction of this audit has a parameter '" + setting.key + "'",
                       "see motley list corrections");
    }
  }
  return rules;
}

/// A file says all of it; an option beside it would be ignored.
void check_file_alone(const AuditArguments& a) {
  const std::vector<std::pair<bool, const char*>> given{{!a.mismatches.empty(), "--mismatch"},
                                                        {a.policy.has_value(), "--policy"},
                                                        {a.vocabulary.has_value(), "--vocabulary"},
                                                        {a.length.has_value(), "--length"},
                                                        {a.record_top_k.has_value(), "--record-top-k"},
                                                        {a.steps_since_old.has_value(), "--steps-since-old"},
                                                        {a.problems.has_value(), "--problems"},
                                                        {a.baseline.has_value(), "--baseline"},
                                                        {a.no_end, "--no-end"}};
  for (const auto& [is, name] : given) {
    if (is)
      throw InputError({"motley audit"}, std::string(name) + " makes a problem, and --problem gives one", "drop one");
  }
}

ProblemSpec spec_of(const AuditArguments& a) {
  ProblemSpec spec;
  const std::string policy = a.policy.value_or("transformer");
  if (policy != "transformer" && policy != "table") {
    throw InputError({"motley audit --policy"}, "there is no policy '" + policy + "'", "allowed: table, transformer");
  }
  spec.table = policy == "table";
  spec.vocabulary = a.vocabulary.value_or(5);
  spec.length = a.length.value_or(4);
  spec.end = !a.no_end;
  spec.record_top_k = a.record_top_k.value_or(0);
  spec.steps_since_old = a.steps_since_old.value_or(0);
  spec.baseline = a.baseline;
  return spec;
}

/// Means over problems, as they come.
class LevelMeans {
 public:
  LevelMeans(std::string mismatch, const std::vector<Rule>& rules) : rules_(rules) {
    level_.mismatch = std::move(mismatch);
    for (const Rule& rule : rules) level_.rows.push_back({rule.name, {}, {}});
    found_.resize(rules.size());
  }
  void add(const Problem& problem, const AuditOptions& options) {
    const Enumeration all(problem);
    if (!has_gradient(all)) {
      ++level_.left_out;
      return;
    }
    distances_.push_back(distance(all));
    level_.truncated = level_.truncated || problem.truncated();
    for (size_t i = 0; i < rules_.size(); ++i) {
      found_[i].push_back(audit(all, *rules_[i].correction, options));
    }
  }
  AuditLevel finished() {
    if (distances_.empty()) {
      throw std::invalid_argument((level_.mismatch.empty() ? "" : level_.mismatch + ": ") +
                                  "the exact gradient is 0 (are all rewards within reach equal?), so that nothing is "
                                  "relative to it");
    }
    const auto count = static_cast<double>(distances_.size());
    for (const Distance& d : distances_) {
      for (double Distance::*member : {&Distance::kl, &Distance::kl_reverse, &Distance::outside,
                                       &Distance::candidate_mass, &Distance::effective_samples}) {
        level_.distance.*member = (&d == distances_.data() ? 0.0 : level_.distance.*member) + d.*member / count;
      }
      level_.distance.max_ratio = std::max(level_.distance.max_ratio, d.max_ratio);
    }
    for (size_t i = 0; i < found_.size(); ++i) average(found_[i], level_.rows[i]);
    return std::move(level_);
  }

 private:
  /// Intervals of independent problems add in squares.
  static void average(const std::vector<Figures>& all, AuditRow& into) {
    const auto count = static_cast<double>(all.size());
    into.mean.exact = all.front().exact;
    into.mean.batches = all.front().batches;
    for (const FigureName& figure : kFigures) {
      double sum = 0.0, widths = 0.0, squares = 0.0;
      for (const Figures& one : all) {
        sum += (one.*figure.member).value;
        widths += std::pow((one.*figure.member).half_width, 2);
      }
      for (const Figures& one : all) squares += std::pow((one.*figure.member).value - sum / count, 2);
      into.mean.*figure.member = {sum / count, std::sqrt(widths) / count};
      (into.deviation.*figure.member).value = all.size() > 1 ? std::sqrt(squares / (count - 1.0)) : 0.0;
    }
  }

  std::span<const Rule> rules_;
  AuditLevel level_;
  std::vector<Distance> distances_;
  std::vector<std::vector<Figures>> found_;  // [rules][problems]
};

AuditReport report_of(const AuditArguments& a, const std::vector<Rule>& rules) {
  AuditReport report;
  report.batch = a.batch;
  const auto options = [&](uint64_t seed) {
    return AuditOptions{.batch = a.batch, .sampled_batches = a.sampled_batches, .seed = seed};
  };
  if (!a.problem.empty()) {
    check_file_alone(a);
    const Problem problem = read_problem(a.problem);
    LevelMeans means("", rules);
    means.add(problem, options(a.seed));
    report.problems = 1;
    report.policy = a.problem;
    report.levels.push_back(means.finished());
    return report;
  }
  ProblemSpec spec = spec_of(a);
  report.problems = a.problems.value_or(8);
  report.policy = fmt::format("{} of {} tokens, length {}, {} problems", spec.table ? "table" : "transformer",
                              spec.vocabulary, spec.length, report.problems);
  std::vector<Mismatch> mismatches;
  std::vector<LevelMeans> means;
  for (const std::string& mismatch : a.mismatches.empty() ? kLadder : a.mismatches) {
    mismatches.push_back(parse_mismatch(mismatch));
    means.emplace_back(mismatch, rules);
  }
  for (int64_t i = 0; i < report.problems; ++i) {
    spec.seed = a.seed + static_cast<uint64_t>(i);
    const ProblemFamily family(spec);
    for (size_t k = 0; k < means.size(); ++k) means[k].add(family.at(mismatches[k]), options(spec.seed));
  }
  for (LevelMeans& level : means) report.levels.push_back(level.finished());
  return report;
}

void print_problem(const AuditArguments& a) {
  if (a.mismatches.size() > 1) throw InputError({"motley audit --print-problem"}, "one --mismatch makes one problem");
  if (a.problems) throw InputError({"motley audit --print-problem"}, "--problems would be ignored: one is printed");
  ProblemSpec spec = spec_of(a);
  spec.seed = a.seed;
  const Mismatch mismatch = parse_mismatch(a.mismatches.empty() ? kLadder.back() : a.mismatches.front());
  if (!a.problem.empty()) check_file_alone(a);
  const Problem problem = a.problem.empty() ? ProblemFamily(spec).at(mismatch) : read_problem(a.problem);
  std::printf("%s\n", problem_json(problem).dump().c_str());
}

}  // namespace

int audit_command(const AuditArguments& arguments) {
  const std::vector<Rule> rules = rules_of(arguments);
  const bool page = arguments.plot.ends_with(".html");
  if (!arguments.plot.empty() && !page && !arguments.plot.ends_with(".svg")) {
    throw InputError({"motley audit --plot"}, "'" + arguments.plot + "' is neither FILE.html nor FILE.svg");
  }
  if (!arguments.plot.empty()) check_output_file("motley audit --plot", arguments.plot);
  if (arguments.table && arguments.json) throw InputError({"motley audit"}, "--table and --json: one of them");
  try {
    if (arguments.print_problem) {
      print_problem(arguments);
      return 0;
    }
    const AuditReport report = report_of(arguments, rules);
    if (!arguments.plot.empty()) write_file_atomically(arguments.plot, audit_plot(report, page));
    const std::string text = arguments.json    ? audit_json(report).dump() + "\n"
                             : arguments.table ? audit_table(report)
                                               : audit_text(report);
    std::fputs(text.c_str(), stdout);
    return 0;
  } catch (const std::invalid_argument& error) {
    throw InputError({"motley audit"}, error.what());
  }
}

}  // namespace motley::app
