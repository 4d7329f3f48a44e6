// Norm, quantizers, head and draw: a row's bits never depend on its neighbours.
#include <numeric>

#include "kernels/head.h"
#include "kernels/norm.h"
#include "kernels/quantize_device.h"
#include "kernels/quantized_rows.h"
#include "kernels/sampling.h"
#include "tests/kernels/property.h"
#include "tests/kernels/quantize_cases.h"

namespace motley::kernels {
namespace {

constexpr int64_t kPool = 9;

template <class T>
void check_norm(Values& draw) {
  const int64_t cols = spread(draw, 1, 700);
  const auto x = random_rows<T>(draw, kPool, cols), dy = random_rows<T>(draw, kPool, cols);
  const auto gain = values<T>(cols, static_cast<uint64_t>(draw.below(1 << 30)));
  check_rows(draw, kPool, 120, [&](std::span<const int64_t> rows) {
    const auto inputs = gathered(x, rows), slopes = gathered(dy, rows);
    const auto count = static_cast<int64_t>(rows.size());
    std::vector<T> y(inputs.size()), dx(inputs.size());
    std::vector<Compute<T>> rstd(rows.size()), dgain(static_cast<size_t>(cols));
    cpu::rms_norm<T>({y.data(), rstd.data(), inputs.data(), gain.data(), count, cols, 1e-6});
    cpu::rms_norm_backward<T>(
        {dx.data(), dgain.data(), slopes.data(), inputs.data(), gain.data(), rstd.data(), count, cols});
    RowResults results(rows.size());
    add_results(results, y), add_results(results, rstd), add_results(results, dx);
    return results;
  });
}

/// The kinds whose scales belong to one row, or with a shared largest magnitude to no row.
bool by_row(const Quantization& how) { return how.scaling != Scaling::block128x128; }

void check_weights(Values& draw, const Quantization& how) {
  const int64_t cols = spread(draw, 1, 600);
  const auto w = random_rows<float>(draw, kPool, cols);
  check_rows(draw, kPool, 150, [&](std::span<const int64_t> rows) {
    const auto count = static_cast<int64_t>(rows.size());
    const QuantizedMatrix m = quantize(gathered(w, rows), count, cols, how, 3.0f);
    RowResults results(rows.size());
    for (const auto* codes : {&m.codes, &m.block_codes})
      add_results(results, std::vector<double>(codes->begin(), codes->end()));
    if (how.scaling == Scaling::channel || how.scaling == Scaling::block1x128) add_results(results, m.scales);
    return results;
  });
}

void check_activations(Values& draw, const Quantization& how) {
  const int64_t cols = spread(draw, 1, 600);
  const auto x = random_rows<float>(draw, kPool, cols);
  const int64_t blocks = how.scaling == Scaling::block1x128 ? (cols + 127) / 128 : 0;
  check_rows(draw, kPool, 150, [&](std::span<const int64_t> rows) {
    auto inputs = gathered(x, rows);
    std::vector<float> factors(rows.size()), scales(rows.size() * static_cast<size_t>(blocks));
    cpu::quantize_activations(
        {inputs.data(), factors.data(), scales.data(), static_cast<int64_t>(rows.size()), cols, how});
    RowResults results(rows.size());
    add_results(results, inputs), add_results(results, factors), add_results(results, scales);
    return results;
  });
}

/// What the head is asked about one row.
template <class T>
struct HeadRow {
  std::vector<T> hidden;
  std::vector<int32_t> candidates, selected;
  std::vector<Compute<T>> slopes;
  Compute<T> entropy_slope;
};

template <class T>
HeadRow<T> random_head_row(Values& draw, int64_t width, int64_t vocabulary, bool restricted) {
  HeadRow<T> row{random_row<T>(draw, width), {}, {}, {}, static_cast<Compute<T>>(chance(draw, 2) ? draw.next() : 0)};
  for (int32_t id = 0; id < vocabulary; ++id)
    if (!restricted || chance(draw, 3) || id == vocabulary - 1) row.candidates.push_back(id);
  auto ids = row.candidates;
  for (int64_t n = draw.below(4); n > 0 && !ids.empty(); --n) {
    const auto at = ids.begin() + draw.below(static_cast<int64_t>(ids.size()));
    row.selected.push_back(*at);
    row.slopes.push_back(static_cast<Compute<T>>(chance(draw, 4) ? 0.0 : draw.next()));
    ids.erase(at);
  }
  return row;
}

template <class T>
void check_head(Values& draw) {
  using C = Compute<T>;
  const int64_t width = spread(draw, 1, 60), vocabulary = spread(draw, 1, 400);
  const bool restricted = chance(draw, 2);
  const double temperature = pick(draw, std::vector<double>{1.0, 0.7, 2.5});
  const auto weight = values<T>(vocabulary * width, static_cast<uint64_t>(draw.below(1 << 30)));
  std::vector<HeadRow<T>> pool;
  for (int64_t r = 0; r < kPool; ++r) pool.push_back(random_head_row<T>(draw, width, vocabulary, restricted));
  const int64_t keep = draw.below(20);  // rows whose logits are kept for the way back
  check_rows(draw, kPool, chance(draw, 6) ? 1100 : 60, [&](std::span<const int64_t> rows) {
    std::vector<int64_t> selected_offsets{0}, candidate_offsets{0};
    std::vector<int32_t> selected, candidates;
    std::vector<T> hidden;
    std::vector<C> slopes, entropy_slopes;
    for (const int64_t r : rows) {
      const HeadRow<T>& row = pool[static_cast<size_t>(r)];
      hidden.insert(hidden.end(), row.hidden.begin(), row.hidden.end());
      selected.insert(selected.end(), row.selected.begin(), row.selected.end());
      candidates.insert(candidates.end(), row.candidates.begin(), row.candidates.end());
      slopes.insert(slopes.end(), row.slopes.begin(), row.slopes.end());
      entropy_slopes.push_back(row.entropy_slope);
      selected_offsets.push_back(static_cast<int64_t>(selected.size()));
      candidate_offsets.push_back(static_cast<int64_t>(candidates.size()));
    }
    const auto count = static_cast<int64_t>(rows.size()), kept = std::min(keep, count);
    std::vector<C> log_p(selected.size()), outside(rows.size()), entropy(rows.size()), lse(rows.size());
    std::vector<C> logits(static_cast<size_t>(kept * vocabulary)), d_weight(weight.size());
    std::vector<T> d_hidden(hidden.size());
    HeadArgs<T> args{hidden.data(), weight.data(), count, width, vocabulary, temperature};
    args.selected = {selected_offsets.data(), selected.data()};
    if (restricted) args.candidates = {candidate_offsets.data(), candidates.data()};
    args.log_p = log_p.data(), args.log_outside = outside.data();
    args.entropy = entropy.data(), args.lse = lse.data();
    args.kept_logits = logits.data(), args.kept_rows = kept;
    cpu::head(args);
    cpu::head_backward<T>({args, slopes.data(), entropy_slopes.data(), d_hidden.data(), d_weight.data()});
    RowResults results(rows.size());
    add_results(results, outside), add_results(results, entropy), add_results(results, lse);
    add_results(results, d_hidden);
    for (size_t r = 0; r < rows.size(); ++r)
      for (int64_t k = selected_offsets[r]; k < selected_offsets[r + 1]; ++k)
        results[r].push_back(real(log_p[static_cast<size_t>(k)]));
    return results;
  });
}

void check_draws(Values& draw) {
  struct Item {
    std::vector<float> logits;
    SamplingRule rule;
    double uniform;
  };
  std::vector<Item> pool;
  for (int64_t r = 0; r < kPool; ++r) {
    Item item{random_row<float>(draw, spread(draw, 1, 5000)), {}, (draw.next() + 1) / 2};
    item.rule.temperature = pick(draw, std::vector<double>{1.0, 0.6, 0.0});
    item.rule.top_p = pick(draw, std::vector<double>{1.0, 0.99, 0.5});
    item.rule.top_k = pick(draw, std::vector<int32_t>{0, 0, 1, 40});
    pool.push_back(std::move(item));
  }
  check_rows(draw, kPool, 30, [&](std::span<const int64_t> rows) {
    RowResults results(rows.size());
    parallel_for(static_cast<int64_t>(rows.size()), 1, [&](int64_t begin, int64_t end) {
      std::vector<float> scaled;
      for (int64_t i = begin; i < end; ++i) {
        const Item& item = pool[static_cast<size_t>(rows[static_cast<size_t>(i)])];
        std::vector<double>& result = results[static_cast<size_t>(i)];
        try {
          const Draw drawn = cpu::draw_token(item.logits.data(), static_cast<int64_t>(item.logits.size()), item.rule,
                                             item.uniform, scaled);
          result = {static_cast<double>(drawn.id), static_cast<double>(drawn.log_q)};
          result.insert(result.end(), drawn.candidates.begin(), drawn.candidates.end());
        } catch (const std::runtime_error&) {
          result = {-1.0};  // no finite logit
        }
      }
    });
    return results;
  });
}

}  // namespace

TEST_CASE("a row's norm never depends on its neighbours", "[property]") {
  for_random_cases(30, [](Values& draw) {
    const int64_t type = draw.below(4);
    if (type == 0) check_norm<float>(draw);
    if (type == 1) check_norm<bf16>(draw);
    if (type == 2) check_norm<fp16>(draw);
    if (type == 3) check_norm<double>(draw);
  });
}

TEST_CASE("a quantized row never depends on its neighbours", "[property]") {
  for_random_cases(60, [](Values& draw) {
    const Quantization how = pick(draw, all_kinds());
    INFO(name_of(how));
    if (!by_row(how)) return;
    check_weights(draw, how);
    check_activations(draw, how);
  });
}

TEST_CASE("a row of the head never depends on its neighbours", "[property]") {
  for_random_cases(24, [](Values& draw) {
    const int64_t type = draw.below(4);
    if (type == 0) check_head<float>(draw);
    if (type == 1) check_head<bf16>(draw);
    if (type == 2) check_head<fp16>(draw);
    if (type == 3) check_head<double>(draw);
  });
}

TEST_CASE("a draw never depends on those before it", "[property]") { for_random_cases(30, check_draws); }

}  // namespace motley::kernels
