#include "tensor/engine_draws.h"

#include <algorithm>
#include <stdexcept>

#include "kernels/device_buffer.h"
#include "kernels/parallel.h"
#include "tensor/engine_records.h"
#include "tensor/ops.h"

namespace motley {
namespace {

/// `logits` [vocabulary], of which the request may be allowed the first only.
void draw_on_host(std::span<const float> logits, const TokenDraw& draw, uint64_t version) {
  thread_local std::vector<float> scaled;
  const auto allowed = static_cast<size_t>(draw.request->vocabulary.value_or(static_cast<int64_t>(logits.size())));
  try {
    draw_and_record(logits.first(allowed), *draw.request, draw.position, version, scaled, draw.output->records);
  } catch (const std::runtime_error& error) {
    draw.output->finish = FinishReason::failed;
    draw.output->error = error.what();
  }
}

}  // namespace

void TokenDrawer::reserve(int64_t rows) {
  if (rows <= capacity_) return;
  memory_.reset();
  capacity_ = 0;
  const auto count = static_cast<size_t>(rows), each = static_cast<size_t>(vocabulary_);
  memory_ = kernels::allocate_on(device_, count * (sizeof(kernels::DrawRequest) + 3 * 4 + 2 * 4 * each));
  capacity_ = rows;
  ++moves_;
}

kernels::DrawTokenArgs TokenDrawer::args(const float* logits, int64_t rows) const {
  auto* const requests = static_cast<kernels::DrawRequest*>(memory_.get());
  auto* const ids = reinterpret_cast<int32_t*>(requests + capacity_);
  int32_t* const counts = ids + capacity_;
  auto* const log_q = reinterpret_cast<float*>(counts + capacity_);
  float* const scaled = log_q + capacity_;
  auto* const candidates = reinterpret_cast<int32_t*>(scaled + capacity_ * vocabulary_);
  return {logits, scaled, rows, vocabulary_, requests, ids, log_q, candidates, counts};
}

void TokenDrawer::send(std::span<const TokenDraw> draws, int64_t rows) {
  reserve(rows);
  std::vector<kernels::DrawRequest> requests;
  for (const TokenDraw& draw : draws)
    requests.push_back({draw.request->rule, draw.request->key, static_cast<uint32_t>(draw.position)});
  requests.resize(static_cast<size_t>(rows), requests.back());
  kernels::upload(device_, memory_.get(), requests.data(), requests.size() * sizeof(kernels::DrawRequest));
}

void TokenDrawer::launch(const float* logits, int64_t rows) { MOTLEY_RUN(device_, draw_token, args(logits, rows)); }

void TokenDrawer::take(const float* logits, std::span<const TokenDraw> draws, uint64_t version) {
  const kernels::DrawTokenArgs from = args(logits, static_cast<int64_t>(draws.size()));
  results_.clear();
  const size_t all = results_.add(from.ids, static_cast<size_t>(3 * capacity_) * 4);  // and counts and log_q behind
  results_.finish();
  const auto* const ids = results_.at<int32_t>(all);
  const int32_t* const counts = ids + capacity_;
  const auto* const log_q = reinterpret_cast<const float*>(counts + capacity_);
  std::vector<Drawn> drawn;
  for (size_t d = 0; d < draws.size(); ++d) {
    const GenerateRequest& request = *draws[d].request;
    // Too rare for a kernel of its own: a part of the vocabulary, or the reason why there is no distribution.
    const bool on_host = ids[d] == kernels::kNotDrawn || request.vocabulary.value_or(vocabulary_) < vocabulary_;
    drawn.push_back({{ids[d], log_q[d], {}}, on_host ? 0 : counts[d], on_host});
  }
  list(from, draws, drawn);
  for (size_t d = 0; d < draws.size(); ++d) {
    if (drawn[d].on_host)
      draw_on_host(drawn[d].row, draws[d], version);
    else
      record_draw(drawn[d].draw, drawn[d].row, *draws[d].request, version, draws[d].output->records);
  }
}

/// Fetches what the records list, and the logits of what is drawn on the host.
void TokenDrawer::list(const kernels::DrawTokenArgs& from, std::span<const TokenDraw> draws,
                       std::vector<Drawn>& drawn) {
  struct Fetch {
    size_t draw, row, candidates;
  };
  std::vector<Fetch> fetches;
  results_.clear();
  for (size_t d = 0; d < draws.size(); ++d) {
    const Drawn& it = drawn[d];
    if (!it.on_host && it.candidates == 0 && draws[d].request->record == RecordKind::sampled) continue;
    const auto begin = static_cast<int64_t>(d) * vocabulary_;
    const size_t row = results_.add((it.on_host ? from.logits : from.scaled) + begin,
                                    static_cast<size_t>(vocabulary_) * sizeof(float));
    const size_t ids = results_.add(from.candidates + begin, static_cast<size_t>(it.candidates) * sizeof(int32_t));
    fetches.push_back({d, row, ids});
  }
  results_.finish();
  for (const Fetch& fetch : fetches) {
    Drawn& it = drawn[fetch.draw];
    const auto* const row = results_.at<float>(fetch.row);
    const auto* const ids = results_.at<int32_t>(fetch.candidates);
    it.row.assign(row, row + vocabulary_);
    it.draw.candidates.assign(ids, ids + it.candidates);
  }
}

void TokenDrawer::draw_on_device(const Tensor& logits, std::span<const TokenDraw> draws, uint64_t version) {
  const NoGrad values_only;
  const auto count = static_cast<int64_t>(draws.size());
  std::vector<int64_t> rows;
  for (const TokenDraw& draw : draws) rows.push_back(draw.row);
  const Tensor own = gather_rows(logits, rows);
  send(draws, count);
  launch(own.pointer<float>(), count);
  take(own.pointer<float>(), draws, version);
}

void TokenDrawer::draw(const Tensor& logits, std::span<const TokenDraw> draws, uint64_t version) {
  if (draws.empty()) return;
  if (device_.kind != kernels::DeviceKind::cpu) return draw_on_device(logits, draws, version);
  const auto vocabulary = static_cast<size_t>(logits.dim(1));
  const std::span<const float> values = logits.span<float>();
  const int64_t grain = std::max<int64_t>(1, 8192 / logits.dim(1));
  kernels::parallel_for(static_cast<int64_t>(draws.size()), grain, [&](int64_t first, int64_t last) {
    for (auto d = static_cast<size_t>(first); d < static_cast<size_t>(last); ++d)
      draw_on_host(values.subspan(static_cast<size_t>(draws[d].row) * vocabulary, vocabulary), draws[d], version);
  });
}

}  // namespace motley
