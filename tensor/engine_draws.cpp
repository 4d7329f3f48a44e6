#include "tensor/engine_draws.h"

#include <algorithm>
#include <stdexcept>

#include "kernels/parallel.h"
#include "tensor/engine_records.h"
#include "tensor/ops.h"
#include "tensor/ops_common.h"

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

template <class T>
std::vector<T> read(const Device& device, const T* from, int64_t count) {
  std::vector<T> values(static_cast<size_t>(count));
  kernels::copy_bytes(values.data(), {}, from, device, values.size() * sizeof(T));
  return values;
}

/// What the device drew, one row per draw; z is theirs.
class DeviceDraws {
 public:
  DeviceDraws(const Tensor& z, std::span<const TokenDraw> draws)
      : device_(z.device()), vocabulary_(z.dim(1)), z_(z.pointer<float>()) {
    const auto count = static_cast<size_t>(z.dim(0));
    std::vector<kernels::DrawRequest> requests;
    for (const TokenDraw& draw : draws)
      requests.push_back({draw.request->rule, draw.request->key, static_cast<uint32_t>(draw.position)});
    const ops::DeviceList<kernels::DrawRequest> list(device_, requests);
    const auto ids = room<int32_t>(count), counts = room<int32_t>(count);
    const auto log_q = room<float>(count);
    candidates_ = room<int32_t>(count * static_cast<size_t>(vocabulary_));
    const kernels::DrawTokenArgs args{z_,        z_,          z.dim(0),          vocabulary_, list.data(),
                                      ids.get(), log_q.get(), candidates_.get(), counts.get()};
    MOTLEY_RUN(device_, draw_token, args);
    ids_ = read(device_, ids.get(), z.dim(0));
    counts_ = read(device_, counts.get(), z.dim(0));
    log_q_ = read(device_, log_q.get(), z.dim(0));
  }
  bool drawn(size_t d) const { return ids_[d] != kernels::kNotDrawn; }
  kernels::Draw draw(size_t d) const {
    const int32_t* first = candidates_.get() + static_cast<int64_t>(d) * vocabulary_;
    return {ids_[d], log_q_[d], read(device_, first, counts_[d])};
  }
  /// Logits over temperature.
  std::vector<float> z(size_t d) const {
    return read(device_, z_ + static_cast<int64_t>(d) * vocabulary_, vocabulary_);
  }

 private:
  template <class T>
  std::shared_ptr<T> room(size_t count) const {
    return std::static_pointer_cast<T>(kernels::allocate_on(device_, count * sizeof(T)));
  }

  Device device_;
  int64_t vocabulary_;
  float* z_;
  std::shared_ptr<int32_t> candidates_;
  std::vector<int32_t> ids_, counts_;
  std::vector<float> log_q_;
};

void draw_on_device(const Tensor& logits, std::span<const TokenDraw> draws, uint64_t version) {
  const NoGrad values_only;
  const int64_t vocabulary = logits.dim(1);
  std::vector<int64_t> rows;
  for (const TokenDraw& draw : draws) rows.push_back(draw.row);
  const Tensor z = gather_rows(logits, rows);
  const DeviceDraws drawn(z, draws);
  for (size_t d = 0; d < draws.size(); ++d) {
    const GenerateRequest& request = *draws[d].request;
    if (!drawn.drawn(d) || request.vocabulary.value_or(vocabulary) < vocabulary) {
      // Too rare for a kernel of its own: a part of the vocabulary, or the reason why there is no distribution.
      const auto row = read(logits.device(), logits.pointer<float>() + draws[d].row * vocabulary, vocabulary);
      draw_on_host(row, draws[d], version);
      continue;
    }
    const kernels::Draw draw = drawn.draw(d);
    const bool listed = !draw.candidates.empty() || request.record != RecordKind::sampled;
    std::vector<float> scaled = listed ? drawn.z(d) : std::vector<float>{};
    record_draw(draw, scaled, request, version, draws[d].output->records);
  }
}

}  // namespace

void draw_tokens(const Tensor& logits, std::span<const TokenDraw> draws, uint64_t version) {
  if (draws.empty()) return;
  if (logits.device().kind != kernels::DeviceKind::cpu) return draw_on_device(logits, draws, version);
  const auto vocabulary = static_cast<size_t>(logits.dim(1));
  const std::span<const float> values = logits.span<float>();
  const int64_t grain = std::max<int64_t>(1, 8192 / logits.dim(1));
  kernels::parallel_for(static_cast<int64_t>(draws.size()), grain, [&](int64_t first, int64_t last) {
    for (auto d = static_cast<size_t>(first); d < static_cast<size_t>(last); ++d)
      draw_on_host(values.subspan(static_cast<size_t>(draws[d].row) * vocabulary, vocabulary), draws[d], version);
  });
}

}  // namespace motley
