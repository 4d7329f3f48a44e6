#include "tensor/engine_context.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace motley {

namespace {
/// The buffers of this thread's last context on the CPU, for its next one: an engine makes a context for every step.
/// Other devices have pools of their own.
thread_local kernels::QuantizedRows spare_rows;

bool on_host(const SamplerWeights& weights) { return weights.device().kind == kernels::DeviceKind::cpu; }
}  // namespace

EngineContext::EngineContext(const SamplerWeights& weights, KvCache& cache, const RopeTable& table, PassLists& lists)
    : weights_(weights), cache_(cache), table_(table), lists_(lists) {
  if (on_host(weights)) rows_ = std::move(spare_rows);
}

EngineContext::~EngineContext() {
  if (on_host(weights_) && rows_.bytes() <= kMostKeptBytes) spare_rows = std::move(rows_);
}

int64_t EngineContext::kept_bytes() { return spare_rows.bytes(); }

void EngineContext::send_rows() {
  lists_.send(cache_.page_size());
  begin_pass();
}

void EngineContext::begin_pass() {
  found_.reset();
  found_.emplace(lists_);
  input_ = Tensor();
}

Tensor EngineContext::product(const Tensor& x, int64_t layer, Projection projection, const Tensor& gate,
                              const Tensor& residual) {
  const kernels::QuantizedLinear& linear = weights_.projection(layer, projection);
  MOTLEY_CHECK(x.dtype() == weights_.profile().output, "project",
               std::string("activations are ") + kernels::dtype_name(x.dtype()));
  MOTLEY_CHECK(x.dim(-1) == linear.inputs(), "project",
               "the layer takes " + std::to_string(linear.inputs()) + " inputs, got " + std::to_string(x.dim(-1)));
  Tensor y = Tensor::empty({x.dim(0), linear.outputs()}, x.dtype(), x.device());
  kernels::LinearEpilogue epilogue;
  for (const Tensor* operand : {&gate, &residual}) {
    MOTLEY_CHECK(!operand->defined() || (operand->shape() == y.shape() && operand->dtype() == y.dtype() &&
                                         operand->device() == y.device()),
                 "project", "a gate or residual must be like the result");
  }
  if (gate.defined()) epilogue.gate = gate.raw();
  if (residual.defined()) epilogue.residual = residual.raw();
  if (!input_.defined() || input_.raw() != x.raw() || input_.shape() != x.shape()) {
    input_ = x;
    rows_.assign(x.raw(), x.dim(0), linear.inputs(), weights_.profile(), x.device());
  }
  linear.forward(rows_, y.raw(), epilogue);
  return y;
}

Tensor EngineContext::project(const Tensor& x, int64_t layer, Projection projection) {
  return product(x, layer, projection, {}, {});
}
Tensor EngineContext::project_gated(const Tensor& x, int64_t layer, Projection projection, const Tensor& gate) {
  return product(x, layer, projection, gate, {});
}
Tensor EngineContext::project_added(const Tensor& x, int64_t layer, Projection projection, const Tensor& residual) {
  return product(x, layer, projection, {}, residual);
}

Tensor EngineContext::attend(const Tensor& q, const Tensor& k, const Tensor& v, int64_t layer) {
  const TransformerConfig& config = weights_.config();
  const int64_t rows = q.dim(0);
  MOTLEY_CHECK(rows == lists_.count(), "attend",
               "got " + std::to_string(rows) + " rows for " + std::to_string(lists_.count()) + " positions");
  const Device& device = q.device();
  Tensor y = Tensor::empty({rows, config.heads * config.head_dim}, q.dtype(), device);
  kernels::visit_dtype(q.dtype(), [&](auto element) {
    using T = decltype(element);
    kernels::CacheWriteArgs<T> write{};
    write.kv_format = cache_.format();
    write.kv_scale = cache_.scale();
    write.page_table = lists_.page_tables();
    write.positions = lists_.positions();
    write.rows = rows;
    write.kv_heads = config.kv_heads;
    write.head_dim = config.head_dim;
    write.page_size = cache_.page_size();
    write.cache = cache_.keys(layer);
    write.rows_in = k.pointer<T>();
    MOTLEY_RUN(device, cache_write<T>, write);
    write.cache = cache_.values(layer);
    write.rows_in = v.pointer<T>();
    MOTLEY_RUN(device, cache_write<T>, write);

    kernels::PagedAttentionArgs<T> args{};
    args.y = y.pointer<T>();
    args.q = q.pointer<T>();
    args.keys = cache_.keys(layer);
    args.values = cache_.values(layer);
    args.kv_format = cache_.format();
    args.kv_scale = cache_.scale();
    args.page_table = lists_.page_tables();
    args.positions = lists_.positions();
    args.rows = rows;
    args.longest = lists_.longest();
    args.heads = config.heads;
    args.kv_heads = config.kv_heads;
    args.head_dim = config.head_dim;
    args.page_size = cache_.page_size();
    args.scale = 1.0 / std::sqrt(static_cast<double>(config.head_dim));
    MOTLEY_RUN(device, paged_attention<T>, args);
  });
  return y;
}

void forward_missing(EngineContext& context, const TransformerConfig& config, KvCache& cache,
                     std::span<CachedSequence* const> sequences, int64_t max_rows,
                     const std::function<void(const Tensor& hidden, std::span<const CachedRow> rows)>& take) {
  const NoGrad no_grad;
  // All pages first: page tables must not move while rows point to them.
  std::vector<CachedRow> rows;
  for (size_t s = 0; s < sequences.size(); ++s) {
    const auto length = static_cast<int64_t>(sequences[s]->tokens.size());
    cache.extend(sequences[s]->pages, length);
    for (int64_t p = sequences[s]->cached; p < length; ++p) rows.push_back({s, static_cast<int32_t>(p)});
  }
  PassRows& pass = context.rows();
  const auto of_sequence = [&](size_t s) -> const CachedSequence& { return *sequences[s]; };
  for_each_pass(rows, max_rows, of_sequence, pass, [&](int64_t first, int64_t last) {
    context.send_rows();
    take(transformer_hidden(config, context, pass.ids, pass.positions),
         std::span(rows).subspan(static_cast<size_t>(first), static_cast<size_t>(last - first)));
  });
}

void check_tokens(std::span<const int32_t> tokens, int64_t vocabulary, const std::string& whose) {
  for (const int32_t token : tokens) {
    if (token < 0 || token >= vocabulary) {
      throw std::invalid_argument(whose + ": token " + std::to_string(token) + " is outside the vocabulary of " +
                                  std::to_string(vocabulary));
    }
  }
}

}  // namespace motley
