#include "tensor/engine_records.h"

#include <limits>
#include <numeric>

#include "kernels/head.h"

namespace motley {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

float log_sum_exp(std::span<const float> values) {
  float lse = 0;
  kernels::cpu::log_sum_exp(&lse, values.data(), 1, static_cast<int64_t>(values.size()));
  return lse;
}

/// Lists all of z's ids.
void append_all(std::span<const float> z, float lse, TokenRecords& out) {
  const size_t first = out.ids.size();
  out.ids.resize(first + z.size());
  std::iota(out.ids.begin() + static_cast<std::ptrdiff_t>(first), out.ids.end(), 0);
  out.id_log_q.resize(first + z.size());
  for (size_t v = 0; v < z.size(); ++v) out.id_log_q[first + v] = z[v] - lse;
}

void append_some(std::span<const float> z, std::span<const int32_t> ids, float lse, TokenRecords& out) {
  out.ids.insert(out.ids.end(), ids.begin(), ids.end());
  for (const int32_t id : ids) out.id_log_q.push_back(z[static_cast<size_t>(id)] - lse);
}

float log_sum_exp_of(std::span<const float> z, std::span<const int32_t> ids) {
  thread_local std::vector<float> members;
  members.clear();
  for (const int32_t id : ids) members.push_back(z[static_cast<size_t>(id)]);
  return log_sum_exp(members);
}

/// Log of the mass outside `ids` as a sum of its own, as the head's log_outside: 1 minus a sum would cancel for a small
/// tail. Changes z.
float log_mass_outside(std::span<float> z, std::span<const int32_t> ids, float lse) {
  for (const int32_t id : ids) z[static_cast<size_t>(id)] = kNothing;
  return log_sum_exp(z) - lse;
}

}  // namespace

void draw_and_record(std::span<const float> logits, const GenerateRequest& request, int64_t position, uint64_t version,
                     std::vector<float>& scaled, TokenRecords& out) {
  const double uniform = kernels::random_uniform(request.key, static_cast<uint32_t>(position));
  const kernels::Draw draw =
      kernels::cpu::draw_token(logits.data(), static_cast<int64_t>(logits.size()), request.rule, uniform, scaled);
  record_draw(draw, {scaled.data(), logits.size()}, request, version, out);
}

void record_draw(const kernels::Draw& draw, std::span<float> z, const GenerateRequest& request, uint64_t version,
                 TokenRecords& out) {
  out.tokens.push_back(draw.id);
  out.log_q.push_back(draw.log_q);
  out.versions.push_back(version);

  float log_tail = kNothing;
  if (!draw.candidates.empty()) {
    append_some(z, draw.candidates, log_sum_exp_of(z, draw.candidates), out);
  } else if (request.record == RecordKind::candidates || request.record == RecordKind::full) {
    append_all(z, log_sum_exp(z), out);
  } else if (request.record == RecordKind::top_k) {
    const auto ids = kernels::cpu::most_probable(z.data(), static_cast<int64_t>(z.size()), request.record_top_k);
    const float lse = log_sum_exp(z);
    append_some(z, ids, lse, out);
    log_tail = log_mass_outside(z, ids, lse);
  } else {
    log_tail = 0.0f;  // nothing is listed: all the mass is outside
  }
  out.log_tail.push_back(log_tail);
  out.offsets.push_back(static_cast<int64_t>(out.ids.size()));
}

}  // namespace motley
