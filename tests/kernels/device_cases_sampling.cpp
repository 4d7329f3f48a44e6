#include <cmath>
#include <limits>
#include <set>

#include "tests/kernels/device_cases.h"
#include "tests/kernels/sampling_reference.h"

namespace motley::kernels {
namespace {

struct SamplingInputs {
  int64_t vocabulary;
  std::string what;
  std::vector<std::vector<float>> rows;
  std::vector<DrawRequest> requests;

  void add(const std::vector<float>& row, const SamplingRule& rule) {
    const auto index = static_cast<uint32_t>(rows.size());
    rows.push_back(row);
    requests.push_back({rule, {7, Purpose::train, uint64_t{index} << 33, index % 2}, 100 + index});
  }
  std::vector<float> logits() const {
    std::vector<float> all;
    for (const auto& row : rows) all.insert(all.end(), row.begin(), row.end());
    return all;
  }
  int64_t count() const { return static_cast<int64_t>(rows.size()); }
  std::string shape() const {
    return "[" + std::to_string(rows.size()) + ", " + std::to_string(vocabulary) + "]" + what;
  }
};

/// The set of candidates is shown as a mask of the vocabulary.
Outputs run_draw(const SamplingInputs& in, const Device& device) {
  const std::vector<float> row_floats(in.rows.size());
  const std::vector<int32_t> row_ids(in.rows.size(), -7);
  const OnDevice<float> logits(device, in.logits()), scaled(device, in.logits()), log_q(device, row_floats);
  const OnDevice<DrawRequest> requests(device, in.requests);
  const OnDevice<int32_t> ids(device, row_ids), counts(device, row_ids),
      candidates(device, std::vector<int32_t>(in.rows.size() * static_cast<size_t>(in.vocabulary), -7));
  MOTLEY_DISPATCH(device, draw_token,
                  DrawTokenArgs{logits.data(), scaled.data(), in.count(), in.vocabulary, requests.data(), ids.data(),
                                log_q.data(), candidates.data(), counts.data()});
  device_synchronize(device);
  return {ids.output("ids"), log_q.output("log_q"), counts.output("counts"), candidates.output("candidates"),
          scaled.output("scaled")};
}

bool gives_a_distribution(const std::vector<float>& row) {
  bool finite = false;
  for (const float x : row) {
    if (std::isnan(x) || x == std::numeric_limits<float>::infinity()) return false;
    finite = finite || std::isfinite(x);
  }
  return finite;
}

std::string check_row(const SamplingInputs& in, size_t r, int32_t id, float log_q, const std::vector<int32_t>& set) {
  const std::vector<float>& row = in.rows[r];
  SamplingRule rule = in.requests[r].rule;
  if (!gives_a_distribution(row)) return id == kNotDrawn && std::isnan(log_q) && set.empty() ? "" : "it was drawn";
  Draw want;
  if (rule.temperature == 0) {
    rule = {};
    want.id = static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
  } else {
    want = naive_draw(row, rule, random_uniform(in.requests[r].key, in.requests[r].position));
  }
  if (id != want.id) return "drew " + std::to_string(id) + ", not " + std::to_string(want.id);
  if (set != want.candidates) return "another set of candidates";
  double largest = -std::numeric_limits<double>::infinity(), mass = 0, size = 0;
  for (const int32_t member : naive_candidates(row, rule)) {
    const double z = row[static_cast<size_t>(member)] / rule.temperature;
    largest = std::max(largest, z);
    size = std::isfinite(z) ? std::max(size, std::fabs(z)) : size;
  }
  for (const int32_t member : naive_candidates(row, rule))
    mass += std::exp(row[static_cast<size_t>(member)] / rule.temperature - largest);
  // z and its differences round at its own size; a lane sums an element in sixteen, exponential and logarithm add four.
  const double steps = static_cast<double>(in.vocabulary) / 16 + 12;
  return beyond("log_q", static_cast<int64_t>(r), log_q,
                row[static_cast<size_t>(id)] / rule.temperature - largest - std::log(mass),
                0x1p-24 * (steps + 4 * size + 4 * std::fabs(log_q)));
}

std::string check_draw(const SamplingInputs& in, const Outputs& outputs) {
  const auto ids = elements<int32_t>(outputs[0]), counts = elements<int32_t>(outputs[2]),
             candidates = elements<int32_t>(outputs[3]);
  const auto log_q = elements<float>(outputs[1]);
  std::string wrong;
  for (size_t r = 0; r < in.rows.size() && wrong.empty(); ++r) {
    const auto begin = candidates.begin() + static_cast<int64_t>(r) * in.vocabulary;
    wrong = check_row(in, r, ids[r], log_q[r], std::vector<int32_t>(begin, begin + counts[r]));
    if (!wrong.empty()) wrong = "row " + std::to_string(r) + ": " + wrong;
  }
  return wrong;
}

Outputs run_most_probable(const SamplingInputs& in, int64_t k, const Device& device) {
  const auto size = in.rows.size() * static_cast<size_t>(std::min(k, in.vocabulary));
  const OnDevice<float> z(device, in.logits());
  const OnDevice<int32_t> ids(device, std::vector<int32_t>(size, -7));
  MOTLEY_DISPATCH(device, most_probable, MostProbableArgs{z.data(), in.count(), in.vocabulary, k, ids.data()});
  device_synchronize(device);
  return {ids.output("ids")};
}
std::string check_most_probable(const SamplingInputs& in, int64_t k, const Outputs& outputs) {
  const auto ids = elements<int32_t>(outputs[0]);
  std::vector<int32_t> all(static_cast<size_t>(in.vocabulary)), want;
  std::iota(all.begin(), all.end(), 0);
  for (const auto& row : in.rows) {
    std::vector<int32_t> best = naive_most_probable(row, all, static_cast<size_t>(k));
    std::sort(best.begin(), best.end());
    want.insert(want.end(), best.begin(), best.end());
  }
  return ids == want ? "" : "other ids";
}

void add_draw_case(std::vector<DeviceCase>& cases, const SamplingInputs& in) {
  cases.push_back({"draw_token", "fp32", in.shape(), [in](const Device& d) { return run_draw(in, d); },
                   [in](const Outputs& o) { return check_draw(in, o); }});
}

/// One row of a kind for each rule.
SamplingInputs rows_of_kind(int kind, int64_t vocabulary, const std::vector<SamplingRule>& rules) {
  const char* const kinds[] = {" uniform", " peaked", " two levels", " equal", " huge steps", " holes"};
  SamplingInputs in{vocabulary, kinds[kind], {}, {}};
  for (const SamplingRule& rule : rules) in.add(row_of_kind(kind, vocabulary, 11 + in.rows.size()), rule);
  return in;
}

/// A row whose first `prefix` ids, each of mass 1, weigh exactly what its uniform number has to exceed: the next id is
/// drawn, and the one before it where a sum or a comparison is off by one. The rest fills up the total: ids of mass
/// about 2^-j for j from 0 on, as many as fit.
SamplingInputs exact_row(int64_t prefix, const SamplingRule& rule) {
  SamplingInputs in{0, " exactly " + std::to_string(prefix), {}, {}};
  in.add({}, rule);
  const double uniform = random_uniform(in.requests[0].key, in.requests[0].position);
  const int64_t reached = prefix * mass_of(1.0f);
  auto total = static_cast<int64_t>(std::ceil(static_cast<double>(reached) / uniform));
  while (mass_to_exceed(uniform, total) < reached) ++total;
  std::vector<float>& row = in.rows[0];
  row.assign(static_cast<size_t>(prefix), 0.0f);
  int64_t left = total - reached;
  for (int j = 0; j <= 42; ++j) {
    const float z = -0.69314718f * static_cast<float>(j);
    const int64_t mass = mass_of(exponential(z));
    for (; left >= mass; left -= mass) row.push_back(z);
  }
  in.vocabulary = static_cast<int64_t>(row.size());
  return in;
}

}  // namespace

void add_sampling_cases(std::vector<DeviceCase>& cases) {
  const std::vector<SamplingRule> rules{{1.0, 1.0, 0},  {0.8, 1.0, 0}, {0.7, 0.9, 0}, {1.3, 0.3, 0},
                                        {1.0, 1.0, 50}, {1.0, 0.9, 7}, {0.0, 0.5, 2}, {1.0, 1.0, 1000000}};
  // 512 threads; places are found 2048 at a time, float sums go by 1024.
  for (const int64_t vocabulary : {1, 2, 511, 1025, 2047, 2049})
    add_draw_case(cases, rows_of_kind(1, vocabulary, rules));
  for (int kind = 0; kind < kRowKinds; ++kind) add_draw_case(cases, rows_of_kind(kind, 700, rules));
  add_draw_case(cases, rows_of_kind(1, 20000, {{1.0, 1.0, 0}, {1.0, 0.97, 64}}));
  // At the end of a step of 2048, at the end of a thread's four, and within them.
  for (const int64_t prefix : {2048, 4, 3}) add_draw_case(cases, exact_row(prefix, {}));
  add_draw_case(cases, rows_of_kind(5, 70, {{1.0, 1.0, 40}, {1.0, 0.9, 40}}));  // top-k of more ids than are finite

  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  SamplingInputs special{5, " special", {}, {}};
  for (const SamplingRule& rule : rules) {
    special.add({0.0f, kNan, 1.0f, 2.0f, -1.0f}, rule);
    special.add({0.0f, kInfinity, 1.0f, 2.0f, -1.0f}, rule);
    special.add(std::vector<float>(5, -kInfinity), rule);
    special.add({-kInfinity, -0.0f, -kInfinity, 0.0f, 0.0f}, rule);
    special.add({-1e30f, 1e30f, -1e30f, 0x1p-149f, 1e30f}, rule);
    special.add({-100.0f, -1000.0f, -100.0f, -129.0f, -130.0f}, rule);
  }
  add_draw_case(cases, special);
  add_draw_case(cases, {5, " none", {}, {}});
  SamplingInputs nothing{0, "", {}, {}};
  nothing.add({}, rules[0]);
  nothing.add({}, rules[2]);
  add_draw_case(cases, nothing);

  for (const int64_t vocabulary : {1, 3, 300, 2049}) {
    for (const int64_t k : std::set<int64_t>{1, 20, vocabulary - 1, vocabulary, vocabulary + 3}) {
      if (k == 0) continue;
      SamplingInputs in{vocabulary, " k " + std::to_string(k), {}, {}};
      for (int kind = 0; kind < kRowKinds; ++kind) in.add(row_of_kind(kind, vocabulary, 31), {});
      cases.push_back({"most_probable", "fp32", in.shape(),
                       [in, k](const Device& d) { return run_most_probable(in, k, d); },
                       [in, k](const Outputs& o) { return check_most_probable(in, k, o); }});
    }
  }
}

}  // namespace motley::kernels
