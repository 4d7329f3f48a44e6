#include "tensor/engine_records.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "kernels/head.h"

namespace motley {
namespace {

std::vector<int32_t> first_ids(size_t count) {
  std::vector<int32_t> ids(count);
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

/// The k ids with the largest logits, ties by lower id; ascending by id.
std::vector<int32_t> most_probable(std::span<const float> scaled, size_t k) {
  std::vector<int32_t> ids = first_ids(scaled.size());
  if (k >= ids.size()) return ids;
  std::nth_element(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(k), ids.end(), [&](int32_t a, int32_t b) {
    const float za = scaled[static_cast<size_t>(a)], zb = scaled[static_cast<size_t>(b)];
    return za != zb ? za > zb : a < b;
  });
  ids.resize(k);
  std::sort(ids.begin(), ids.end());
  return ids;
}

std::vector<float> gather(std::span<const float> values, std::span<const int32_t> ids) {
  std::vector<float> out;
  out.reserve(ids.size());
  for (const int32_t id : ids) out.push_back(values[static_cast<size_t>(id)]);
  return out;
}

float log_sum_exp(std::span<const float> values) {
  return kernels::cpu::log_sum_exp(values.data(), static_cast<int64_t>(values.size()));
}

/// Log of the mass outside `ids` (ascending) as a sum of its own: 1 minus a sum would cancel for a small tail.
float log_mass_outside(std::span<const float> scaled, std::span<const int32_t> ids, float lse) {
  std::vector<float> others;
  others.reserve(scaled.size() - ids.size());
  auto next = ids.begin();
  for (size_t v = 0; v < scaled.size(); ++v) {
    if (next != ids.end() && *next == static_cast<int32_t>(v)) {
      ++next;
    } else {
      others.push_back(scaled[v]);
    }
  }
  return others.empty() ? -std::numeric_limits<float>::infinity() : log_sum_exp(others) - lse;
}

void append_list(std::span<const int32_t> ids, std::span<const float> values, float lse, float log_tail,
                 TokenRecords& out) {
  out.ids.insert(out.ids.end(), ids.begin(), ids.end());
  for (const float z : values) out.id_log_q.push_back(z - lse);
  out.log_tail.push_back(log_tail);
}

}  // namespace

void draw_and_record(std::span<const float> logits, const GenerateRequest& request, int64_t position, uint64_t version,
                     std::vector<float>& scaled, TokenRecords& out) {
  const double uniform = kernels::random_uniform(request.key, static_cast<uint32_t>(position));
  const kernels::Draw draw =
      kernels::cpu::draw_token(logits.data(), static_cast<int64_t>(logits.size()), request.rule, uniform, scaled);
  out.tokens.push_back(draw.id);
  out.log_q.push_back(draw.log_q);
  out.versions.push_back(version);

  constexpr float kNothing = -std::numeric_limits<float>::infinity();
  const std::span<const float> z(scaled.data(), logits.size());
  if (!draw.candidates.empty()) {
    const std::vector<float> members = gather(z, draw.candidates);
    append_list(draw.candidates, members, log_sum_exp(members), kNothing, out);
  } else if (request.record == RecordKind::candidates || request.record == RecordKind::full) {
    append_list(first_ids(z.size()), z, log_sum_exp(z), kNothing, out);
  } else if (request.record == RecordKind::top_k) {
    const std::vector<int32_t> ids = most_probable(z, static_cast<size_t>(request.record_top_k));
    const float lse = log_sum_exp(z);
    append_list(ids, gather(z, ids), lse, log_mass_outside(z, ids, lse), out);
  } else {
    out.log_tail.push_back(0.0f);  // nothing is listed: all the mass is outside
  }
  out.offsets.push_back(static_cast<int64_t>(out.ids.size()));
}

}  // namespace motley
