// The tables of motley mismatch.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "app/mismatch.h"

namespace motley::app {
namespace {

using namespace algos::mismatch;

std::string shown_number(double value) { return std::isfinite(value) ? fmt::format("{:.3g}", value) : "-"; }
std::string percent(double share) { return std::isfinite(share) ? fmt::format("{:.1f} %", 100 * share) : "-"; }
std::string share_of(double part, double whole) { return whole > 0.0 ? percent(part / whole) : "-"; }
/// "1.02 [0.9, 1.1]", per 1,000 tokens.
std::string interval(const Interval& i) {
  return fmt::format("{} [{}, {}]", shown_number(1000 * i.value), shown_number(1000 * i.low),
                     shown_number(1000 * i.high));
}

std::string line(const std::string& what, const Estimate& e) {
  return fmt::format("{:<46}{:>11}  +- {}\n", what, shown_number(e.value), shown_number(e.error));
}
std::string line(const std::string& what, const std::string& value) {
  return fmt::format("{:<46}{:>11}\n", what, value);
}

std::string summary_table(const Summary& s) {
  std::string text = line("KL(q||p) per token, whole vocabulary", s.kl_qp);
  text += line("KL(p||q) per token, whole vocabulary", s.kl_pq);
  text += line("KL(q||p) per token, drawn tokens, k1", s.k1);
  text += line("KL(q||p) per token, drawn tokens, k3", s.k3);
  text += line("KL(q||p) per response, whole vocabulary", s.sequence_kl);
  text += line("KL(q||p) per response, drawn tokens, k1", s.sequence_k1);
  text += line("total variation per token", s.variation);
  text += line("same most probable token", percent(s.same_top1));
  text += line("ratio p/q of drawn tokens outside [0.2, 5]", percent(s.outside));
  text += line("largest ratio p/q", shown_number(s.largest_ratio));
  const algos::mismatch::Spread& d = s.difference;
  text +=
      fmt::format("p - q of drawn tokens: mean {}, deviation {}, least {}, 1 % {}, median {}, 99 % {}, largest {}\n",
                  shown_number(d.mean), shown_number(d.deviation), shown_number(d.least), shown_number(d.q01),
                  shown_number(d.q50), shown_number(d.q99), shown_number(d.largest));
  text += fmt::format("log q - log p, summed over a response: {} nats per 1,000 tokens\n", interval(s.running));
  text += fmt::format("change per 1,000 positions: of log q - log p {}, of KL(q||p) {}\n", interval(s.gap_by_position),
                      interval(s.kl_by_position));
  if (s.not_finite > 0) {
    text += fmt::format("{} tokens have logits that are no distribution, and are in no figure\n",
                        with_commas(s.not_finite));
  }
  return text;
}

std::string bins_table(const std::string& head, const std::vector<Bin>& bins, bool whole_numbers) {
  std::string text = fmt::format("{:<18}{:>9}{:>11}{:>12}{:>11}{:>10}\n", head, "tokens", "KL(q||p)", "log q-log p",
                                 "entropy", "of KL");
  for (const Bin& bin : bins) {
    const bool one = whole_numbers && bin.high == bin.low + 1;
    const std::string range = one             ? fmt::format("{:g}", bin.low)
                              : whole_numbers ? fmt::format("{:g}-{:g}", bin.low, bin.high - 1)
                                              : fmt::format("{:g}-{:g}", bin.low, bin.high);
    text += fmt::format("{:<18}{:>9}{:>11}{:>12}{:>11}{:>10}\n", range, with_commas(bin.tokens), shown_number(bin.kl),
                        shown_number(bin.gap), shown_number(bin.entropy), percent(bin.share));
  }
  return text;
}

std::string attribution_table(const std::string& head, const Attribution& a) {
  std::string text = fmt::format("{:<18}{:>11}{:>10}{:>13}{:>11}{:>10}\n", head, "KL alone", "of whole", "cumulative",
                                 "added", "of whole");
  for (const Contribution& unit : a.units) {
    text += unit.differs ? fmt::format("{:<18}{:>11}{:>10}{:>13}{:>11}{:>10}\n", unit.name, shown_number(unit.alone),
                                       share_of(unit.alone, a.whole), shown_number(unit.cumulative),
                                       shown_number(unit.added), share_of(unit.added, a.whole))
                         : fmt::format("{:<18}{:>21}\n", unit.name, "same in both");
  }
  text += fmt::format("{:<18}{:>11}{:>10}\n", "sum", shown_number(a.alone_sum), share_of(a.alone_sum, a.whole));
  text += fmt::format("{:<18}{:>11}{:>10}\n", "interaction", shown_number(a.interaction()),
                      share_of(a.interaction(), a.whole));
  return text + fmt::format("{:<18}{:>11}{:>10}{:>13}\n", "whole", shown_number(a.whole), share_of(a.whole, a.whole),
                            shown_number(a.whole));
}

/// KL alone by operation and layer; rows and columns of operations that do not differ are left out.
std::string pairs_table(const Attribution& by_operation, const std::vector<std::vector<double>>& pairs) {
  const size_t columns = pairs.front().size();
  std::string text = fmt::format("{:<18}", "KL alone, layer");
  for (size_t layer = 0; layer < columns; ++layer)
    text += fmt::format("{:>10}", layer + 1 == columns ? "outside" : std::to_string(layer));
  text += '\n';
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (!by_operation.units[i].differs) continue;
    text += fmt::format("{:<18}", by_operation.units[i].name);
    for (const double value : pairs[i]) text += fmt::format("{:>10}", value == 0.0 ? "" : shown_number(value));
    text += '\n';
  }
  return text;
}

}  // namespace

std::string mismatch_section(const Measurement& m) {
  std::string text = fmt::format("{}\nsampler q: {}\ntrainer p: {}\n{} responses, {} tokens\n\n", mismatch_title(m),
                                 describe(m.sampler), describe(m.trainer), with_commas(m.summary.responses),
                                 with_commas(m.summary.tokens));
  text += summary_table(m.summary);
  if (m.by_operation) text += "\n" + attribution_table("operation", *m.by_operation);
  if (m.by_layer) text += "\n" + attribution_table("layer", *m.by_layer);
  if (!m.pairs.empty()) text += "\n" + pairs_table(*m.by_operation, m.pairs);
  text += "\n" + bins_table("position", m.summary.by_position, true);
  text += "\n" + bins_table("response's length", m.summary.by_length, true);
  return text + "\n" + bins_table("largest p", m.summary.by_top1, false);
}

namespace {

std::string comparison(const std::vector<Measurement>& measurements) {
  const double first = measurements.front().summary.kl_qp.value;
  std::string text =
      fmt::format("{:<28}{:>11}{:>13}{:>12}{:>13}{:>11}  {}\n", "against " + measurements[0].trainer.name, "KL(q||p)",
                  "per response", "same top-1", "p-q deviates", "first/this", "log q - log p per 1,000 tokens");
  for (const Measurement& m : measurements) {
    const Summary& s = m.summary;
    text += fmt::format("{:<28}{:>11}{:>13}{:>12}{:>13}{:>11}  {}\n", m.sampler.name, shown_number(s.kl_qp.value),
                        shown_number(s.sequence_kl.value), percent(s.same_top1), shown_number(s.difference.deviation),
                        s.kl_qp.value > 0.0 ? shown_number(first / s.kl_qp.value) : "-", interval(s.running));
  }
  return text;
}

/// Shares of each sampler's whole: alone, and added in the order of the pass.
std::string attributions_side_by_side(const std::vector<Measurement>& measurements) {
  std::string text = fmt::format("{:<18}", "alone, added");
  for (const Measurement& m : measurements) text += fmt::format("{:>20}", m.sampler.name);
  text += '\n';
  const auto row = [&](const std::string& name, auto alone, auto added) {
    text += fmt::format("{:<18}", name);
    for (const Measurement& m : measurements) text += fmt::format("{:>11}{:>9}", alone(m), added(m));
    text += '\n';
  };
  for (size_t i = 0; i < kOperations; ++i) {
    const auto unit = [i](const Measurement& m) { return m.by_operation->units[i]; };
    row(
        measurements.front().by_operation->units[i].name,
        [&](const Measurement& m) { return unit(m).differs ? share_of(unit(m).alone, m.by_operation->whole) : "same"; },
        [&](const Measurement& m) { return unit(m).differs ? share_of(unit(m).added, m.by_operation->whole) : "-"; });
  }
  const auto nothing = [](const Measurement&) { return std::string(); };
  row(
      "sum", [](const Measurement& m) { return share_of(m.by_operation->alone_sum, m.by_operation->whole); },
      [](const Measurement& m) { return share_of(m.by_operation->whole, m.by_operation->whole); });
  row(
      "interaction",
      [](const Measurement& m) { return share_of(m.by_operation->interaction(), m.by_operation->whole); }, nothing);
  row(
      "whole, KL(q||p)", [](const Measurement& m) { return shown_number(m.by_operation->whole); }, nothing);
  return text;
}

/// KL(q||p) of each sampler by the trainer's largest probability, and the share of its whole.
std::string peakedness_side_by_side(const std::vector<Measurement>& measurements) {
  std::string text = fmt::format("{:<18}", "largest p");
  for (const Measurement& m : measurements) text += fmt::format("{:>20}", m.sampler.name);
  text += '\n';
  std::map<double, double> ranges;  // that any sampler has tokens in
  for (const Measurement& m : measurements)
    for (const Bin& bin : m.summary.by_top1) ranges[bin.low] = bin.high;
  for (const auto& [low, high] : ranges) {
    text += fmt::format("{:<18}", fmt::format("{:g}-{:g}", low, high));
    for (const Measurement& m : measurements) {
      const std::vector<Bin>& bins = m.summary.by_top1;
      const auto bin = std::find_if(bins.begin(), bins.end(), [from = low](const Bin& b) { return b.low == from; });
      text += bin == bins.end() ? fmt::format("{:>20}", "-")
                                : fmt::format("{:>11}{:>9}", shown_number(bin->kl), percent(bin->share));
    }
    text += '\n';
  }
  return text;
}

}  // namespace

std::string mismatch_text(const MismatchReport& report) {
  std::string text = fmt::format("{}: {} {}, at most {} tokens, temperature {:g}, seed {}\n\n", report.model,
                                 with_commas(report.prompt_count), report.prompts, report.drawing.length,
                                 report.drawing.temperature, report.drawing.seed);
  if (report.measurements.size() == 1) return text + mismatch_section(report.measurements.front());
  text += comparison(report.measurements) + "\n";
  if (report.measurements.front().by_operation) text += attributions_side_by_side(report.measurements) + "\n";
  return text + peakedness_side_by_side(report.measurements);
}

}  // namespace motley::app
