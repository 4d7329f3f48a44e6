// The JSON of motley mismatch. What has no value (an interval of one response) is null.
#include <cmath>
#include <nlohmann/json.hpp>

#include "app/mismatch.h"

namespace motley::app {
namespace {

using namespace algos::mismatch;
using nlohmann::json;

json number(double value) { return std::isfinite(value) ? json(value) : json(nullptr); }
json to_json(const Estimate& e) { return {{"value", number(e.value)}, {"standard_error", number(e.error)}}; }
/// Per 1,000 tokens or positions.
json to_json(const Interval& i) {
  return {{"value", number(1000 * i.value)}, {"low", number(1000 * i.low)}, {"high", number(1000 * i.high)}};
}

json to_json(const algos::mismatch::Spread& s) {
  return {{"mean", number(s.mean)},   {"deviation", number(s.deviation)},
          {"least", number(s.least)}, {"largest", number(s.largest)},
          {"q01", number(s.q01)},     {"q05", number(s.q05)},
          {"q25", number(s.q25)},     {"q50", number(s.q50)},
          {"q75", number(s.q75)},     {"q95", number(s.q95)},
          {"q99", number(s.q99)}};
}

json to_json(const std::vector<Bin>& bins) {
  json list = json::array();
  for (const Bin& bin : bins) {
    json row{{"low", bin.low},         {"high", bin.high},           {"tokens", bin.tokens},
             {"kl", number(bin.kl)},   {"gap", number(bin.gap)},     {"absolute_gap", number(bin.absolute_gap)},
             {"entropy", bin.entropy}, {"same_top1", bin.same_top1}, {"share_of_kl", bin.share}};
    if (bin.responses > 0) row["responses"] = bin.responses;
    list.push_back(row);
  }
  return list;
}

json to_json(const Attribution& attribution) {
  json units = json::array();
  for (const Contribution& unit : attribution.units) {
    units.push_back({{"name", unit.name},
                     {"same_in_both", !unit.differs},
                     {"kl_alone", unit.alone},
                     {"kl_cumulative", unit.cumulative},
                     {"kl_added", unit.added}});
  }
  return {{"kl", attribution.whole},
          {"kl_alone_sum", attribution.alone_sum},
          {"interaction", attribution.interaction()},
          {"units", units}};
}

json pairs_json(const std::vector<std::vector<double>>& pairs) {
  json rows = json::object();
  for (const Operation operation : operations()) {
    rows[operation_name(operation)] = pairs[static_cast<size_t>(operation)];
  }
  return rows;
}

json summary_json(const Summary& s) {
  return {{"responses", s.responses},
          {"tokens", s.tokens},
          {"tokens_not_finite", s.not_finite},
          {"kl_sampler_trainer", to_json(s.kl_qp)},
          {"kl_trainer_sampler", to_json(s.kl_pq)},
          {"k1", to_json(s.k1)},
          {"k3", to_json(s.k3)},
          {"total_variation", to_json(s.variation)},
          {"sequence_kl", to_json(s.sequence_kl)},
          {"sequence_k1", to_json(s.sequence_k1)},
          {"same_top1", number(s.same_top1)},
          {"ratio_outside", number(s.outside)},
          {"ratio_max", number(s.largest_ratio)},
          {"p_minus_q", to_json(s.difference)},
          {"histogram", {{"edge", s.histogram.edge}, {"counts", s.histogram.counts}}},
          {"gap_per_1000_tokens", to_json(s.running)},
          {"gap_change_per_1000_positions", to_json(s.gap_by_position)},
          {"kl_change_per_1000_positions", to_json(s.kl_by_position)},
          {"by_position", to_json(s.by_position)},
          {"by_length", to_json(s.by_length)},
          {"by_top1", to_json(s.by_top1)}};
}

}  // namespace

json mismatch_json(const MismatchReport& report) {
  json results = json::array();
  for (const Measurement& measurement : report.measurements) {
    json result = summary_json(measurement.summary);
    result["sampler"] = measurement.sampler.name;
    result["trainer"] = measurement.trainer.name;
    result["sampler_description"] = describe(measurement.sampler);
    result["trainer_description"] = describe(measurement.trainer);
    result["records_that_differ"] = measurement.recorded_differs;
    result["largest_difference_of_records"] = measurement.recorded_difference;
    if (measurement.by_operation) result["by_operation"] = to_json(*measurement.by_operation);
    if (measurement.by_layer) result["by_layer"] = to_json(*measurement.by_layer);
    if (!measurement.pairs.empty()) result["kl_alone_by_operation_and_layer"] = pairs_json(measurement.pairs);
    results.push_back(std::move(result));
  }
  return {{"model", report.model},
          {"prompts", {{"source", report.prompts}, {"count", report.prompt_count}}},
          {"length", report.drawing.length},
          {"run_on", report.drawing.stop_tokens.empty()},
          {"temperature", report.drawing.temperature},
          {"seed", report.drawing.seed},
          {"device", kernels::device_name(report.drawing.device)},
          {"vocabulary", report.drawing.vocabulary},
          {"results", std::move(results)}};
}

}  // namespace motley::app
