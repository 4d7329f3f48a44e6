#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>

#include "app/bench.h"
#include "app/input_error.h"
#include "app/memory.h"
#include "kernels/attention.h"
#include "tensor/engine_context.h"

namespace motley::app {
namespace {

constexpr int64_t kPrompt = 32,
                  kDecoded = 64;                         // tokens of a request: the first are not timed
constexpr double kMostCache = 4.0 * 1024 * 1024 * 1024;  // bytes of keys, values and logits that a case may take

std::vector<int32_t> some_tokens(int64_t count, int64_t vocabulary, int64_t seed) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>((i * 7919 + seed * 104729) % vocabulary));
  return tokens;
}

GenerateRequest request_of(std::vector<int32_t> tokens, uint64_t id) {
  GenerateRequest request;
  request.id = id;
  request.tokens = std::move(tokens);
  request.max_new_tokens = kDecoded + 1;
  request.key = {1, kernels::Purpose::generate, id, 0};
  return request;
}

/// Seconds of one decode step of `batch` sequences, from an engine that is
/// given new prompts each time.
double decode_requests(const std::shared_ptr<const SamplerWeights>& weights, int64_t batch, int64_t steps,
                       uint64_t* round) {
  Engine engine(weights, {.max_sequences = batch, .max_prefill_rows = batch * kPrompt});
  for (int64_t s = 0; s < batch; ++s) {
    const auto seed = static_cast<int64_t>(++*round);
    engine.submit(request_of(some_tokens(kPrompt, weights->config().vocabulary, seed), static_cast<uint64_t>(s)));
  }
  engine.step();  // the prompts
  const double start = seconds_now();
  for (int64_t i = 0; i < steps; ++i) engine.step();
  return (seconds_now() - start) / static_cast<double>(steps);
}

/// A cache that holds `context` positions of `batch` sequences, none computed:
/// the time of a decode step does not depend on what they hold.
class FilledCache {
 public:
  FilledCache(std::shared_ptr<const SamplerWeights> weights, int64_t batch, int64_t context)
      : weights_(std::move(weights)),
        config_(weights_->config()),
        table_(config_.max_positions, config_.head_dim, config_.rope_theta, DType::f32),
        cache_(config_, weights_->profile(), 16, batch),
        sequences_(static_cast<size_t>(batch)) {
    for (size_t s = 0; s < sequences_.size(); ++s) {
      sequences_[s].tokens = some_tokens(context + 1, config_.vocabulary, static_cast<int64_t>(s));
      sequences_[s].cached = context;
      cache_.extend(sequences_[s].pages, context + 1);
      pointers_.push_back(&sequences_[s]);
    }
    kernels::visit_dtype(weights_->profile().output, [&](auto element) { fill(element, context); });
  }
  /// What an engine does in a step: the forward pass, the head, a draw for each
  /// row.
  void step() {
    EngineContext context(*weights_, cache_, table_, lists_);
    const auto rows = static_cast<int64_t>(sequences_.size());
    logits_.resize(static_cast<size_t>(rows * config_.vocabulary));
    forward_missing(context, config_, cache_, pointers_, rows, [&](const Tensor& hidden, std::span<const CachedRow>) {
      kernels::MatmulArgs product;
      product.a = kernels::row_major(static_cast<const void*>(hidden.raw()), hidden.dtype(), rows, config_.width);
      weights_->packed_head().put_into(product);
      product.c = kernels::row_major(logits_.data(), DType::f32, rows, config_.vocabulary);
      kernels::cpu::matmul(product);
    });
    for (int64_t r = 0; r < rows; ++r)
      kernels::cpu::draw_token(logits_.data() + r * config_.vocabulary, config_.vocabulary, {}, 0.5, scaled_);
  }

 private:
  template <class T>
  void fill(T, int64_t context) {
    const int64_t numbers = config_.kv_heads * config_.head_dim;
    std::vector<T> row(static_cast<size_t>(numbers));
    for (size_t i = 0; i < row.size(); ++i) row[i] = T(0.02f * static_cast<float>(static_cast<int64_t>(i % 41) - 20));
    kernels::CacheWriteArgs<T> write{};
    write.rows_in = row.data(), write.rows = 1;
    write.kv_format = cache_.format(), write.kv_scale = cache_.scale();
    write.kv_heads = config_.kv_heads, write.head_dim = config_.head_dim, write.page_size = cache_.page_size();
    for (const CachedSequence& sequence : sequences_) {
      const int32_t* pages[] = {sequence.pages.data()};
      write.page_table = pages;
      for (int64_t layer = 0; layer < config_.layers; ++layer) {
        for (void* part : {cache_.keys(layer), cache_.values(layer)}) {
          write.cache = part;
          for (int32_t position = 0; position < static_cast<int32_t>(context); ++position) {
            write.positions = &position;
            kernels::cpu::cache_write(write);
          }
        }
      }
    }
  }

  std::shared_ptr<const SamplerWeights> weights_;
  TransformerConfig config_;
  RopeTable table_;
  KvCache cache_;
  PassLists lists_{Device{}};
  std::vector<CachedSequence> sequences_;
  std::vector<CachedSequence*> pointers_;
  std::vector<float> logits_, scaled_;
};

double cache_bytes(const TransformerConfig& config, const kernels::NumericProfile& profile, int64_t batch,
                   int64_t context) {
  return 2.0 * static_cast<double>(config.layers * config.kv_heads * config.head_dim) *
         static_cast<double>(kernels::kv_bytes(profile.kv_cache)) * static_cast<double>(batch) *
         static_cast<double>(context);
}

/// Whether a case fits the memory that one may take; says so where it does not.
bool fits(const BenchRow& row, const TransformerConfig& config, const kernels::NumericProfile& profile, int64_t batch,
          int64_t positions) {
  const double logits = 4.0 * static_cast<double>(batch * config.vocabulary);
  const double bytes = cache_bytes(config, profile, batch, positions) + logits;
  if (bytes <= kMostCache) return true;
  std::fputs(fmt::format("bench: sampler: {} is left out: its keys, values and logits would take {}, of {} at most\n",
                         row.name, bytes_text(bytes), bytes_text(kMostCache))
                 .c_str(),
             stderr);
  return false;
}

BenchRow sampler_row(const BenchShape& shape, const kernels::NumericProfile& profile, int64_t batch, int64_t threads) {
  BenchRow row;
  row.group = "sampler";
  row.name = fmt::format("{} {}, batch {}", shape.name, profile.name, batch);
  row.threads = threads;
  row.tokens = static_cast<double>(batch);
  row.more = {{"shape", shape.name}, {"profile", profile.name}, {"batch", batch}};
  return row;
}

/// All cases of one model: they take turns; then its weights are freed.
std::vector<BenchCase> model_cases(const BenchArguments& arguments, const BenchShape& shape,
                                   const kernels::NumericProfile& profile, const Parameters& masters) {
  const auto weights = std::make_shared<const SamplerWeights>(shape.config, masters, profile, 0);
  std::vector<int64_t> batches = arguments.batches;
  if (batches.empty()) batches = arguments.quick ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{1, 16, 64};
  const int64_t steps = arguments.quick ? 4 : kDecoded;
  std::vector<BenchCase> cases;
  for (const int64_t threads : arguments.threads) {
    for (const int64_t batch : batches) {
      BenchCase c;
      c.row = sampler_row(shape, profile, batch, threads);
      if (!fits(c.row, shape.config, profile, batch, kPrompt + kDecoded + 1)) continue;
      const auto round = std::make_shared<uint64_t>(0);
      c.timed = [=] { return decode_requests(weights, batch, steps, round.get()); };
      cases.push_back(std::move(c));
    }
  }
  return cases;
}

/// One case: caches of several contexts together would not fit.
std::vector<BenchRow> context_rows(const BenchArguments& arguments, const BenchShape& shape,
                                   const kernels::NumericProfile& profile, const Parameters& masters) {
  const auto weights = std::make_shared<const SamplerWeights>(shape.config, masters, profile, 0);
  const std::vector<int64_t> batches = arguments.batches.empty() ? std::vector<int64_t>{1, 16} : arguments.batches;
  std::vector<BenchRow> rows;
  for (const int64_t context : arguments.contexts) {
    for (const int64_t batch : batches) {
      BenchRow row = sampler_row(shape, profile, batch, 1);
      row.name += fmt::format(", context {}", context);
      row.more["context"] = context;
      if (!fits(row, shape.config, profile, batch, context)) continue;
      const auto cache = std::make_shared<FilledCache>(weights, batch, context);
      for (const int64_t threads : arguments.threads) {
        BenchCase c;
        c.row = row;
        c.row.threads = threads;
        c.call = [cache] { cache->step(); };
        rows.push_back(run_cases({std::move(c)}, effort_of(arguments)).at(0));
      }
    }
  }
  return rows;
}

}  // namespace

void check_sampler(const BenchArguments& arguments) {
  for (const std::string& name : arguments.profiles) find_bench_profile(name);
  for (const std::string& name : arguments.shapes) find_shape(name);
}

std::vector<BenchRow> bench_sampler(const BenchArguments& arguments) {
  std::vector<std::string> shapes = arguments.shapes, profiles = arguments.profiles;
  if (shapes.empty())
    shapes = arguments.quick ? std::vector<std::string>{"1M"} : std::vector<std::string>{"1M", "25M", "135M"};
  if (profiles.empty()) profiles = {"bf16", "fp8", "nvfp4"};
  std::vector<BenchRow> rows;
  for (const std::string& name : shapes) {
    const BenchShape& shape = find_shape(name);
    const Parameters masters = bench_parameters(shape.config);
    for (const std::string& profile : profiles) {
      const kernels::NumericProfile& numeric = find_bench_profile(profile);
      auto found = arguments.contexts.empty()
                       ? run_cases(model_cases(arguments, shape, numeric, masters), effort_of(arguments))
                       : context_rows(arguments, shape, numeric, masters);
      for (BenchRow& row : found) rows.push_back(std::move(row));
    }
  }
  if (rows.empty()) throw InputError({"motley bench sampler"}, "nothing is left to measure", "take smaller batches");
  return rows;
}

}  // namespace motley::app
