#include "algos/audit/statistics.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "kernels/philox.h"

namespace motley::algos::audit {
namespace {

/// Weighted sums over estimates; divided by `weight` they are means.
struct Sums {
  explicit Sums(size_t entries) : first(entries, 0.0) {}
  double weight = 0.0;
  std::vector<double> first;  // [entries] of g
  double second = 0.0;        // of |g|^2
  double masked = 0.0, tokens = 0.0;
  Sums& operator+=(const Sums& more) {
    weight += more.weight;
    second += more.second;
    masked += more.masked;
    tokens += more.tokens;
    for (size_t i = 0; i < first.size(); ++i) first[i] += more.first[i];
    return *this;
  }
};

/// g of every sequence of a list, as the rows that it touches and coefficients there.
struct Gradients {
  std::vector<std::vector<size_t>> rows;  // [sequences of the list] ascending: a path through the tree
  std::vector<std::vector<double>> c;     // [rows of the sequence, vocabulary]
  std::vector<double> masked;             // [sequences of the list] tokens
};

Gradients gradients(const Enumeration& all, const Correction& correction, std::span<const size_t> list,
                    std::span<const double> advantage) {
  const LaidOut laid_out(all, list, advantage, correction);
  const CorrectionBatch& batch = laid_out.batch();
  Coefficients out(batch);
  correction.coefficients(batch, out);

  const auto width = static_cast<size_t>(all.problem().vocabulary);
  Gradients result{std::vector<std::vector<size_t>>(list.size()), std::vector<std::vector<double>>(list.size()),
                   std::vector<double>(list.size(), 0.0)};
  std::vector<double> b(width);
  for (size_t t = 0; t < batch.tokens(); ++t) {
    std::fill(b.begin(), b.end(), 0.0);
    double total = 0.0;
    for (auto k = static_cast<size_t>(batch.offsets[t]); k < static_cast<size_t>(batch.offsets[t + 1]); ++k) {
      b[static_cast<size_t>(laid_out.id(k))] = -out.b[k];
      total -= out.b[k];
    }
    const auto i = static_cast<size_t>(batch.sequence[t]);
    const size_t row = laid_out.row(t);
    result.rows[i].push_back(row);
    for (size_t v = 0; v < width; ++v) {
      result.c[i].push_back(b[v] - std::exp(all.log_p()[row * width + v]) * total);
    }
    result.masked[i] += out.masked[t];
  }
  return result;
}

/// |g|^2 of one sequence: few rows, so that enumeration costs little whatever the problem's size.
double squared_norm(const Problem& problem, const std::vector<size_t>& rows, const std::vector<double>& c) {
  double total = 0.0;
  if (problem.gram.empty()) {  // rows of a path differ
    for (const double value : c) total += value * value;
    return total;
  }
  const auto width = static_cast<size_t>(problem.vocabulary);
  const size_t n = problem.entries();
  for (size_t i = 0; i < c.size(); ++i) {
    const double* gram = &problem.gram[(rows[i / width] * width + i % width) * n];
    for (size_t j = 0; j < c.size(); ++j) total += c[i] * c[j] * gram[rows[j / width] * width + j % width];
  }
  return total;
}

void add_sequence(const Problem& problem, const Gradients& g, size_t i, double factor, std::vector<double>& sum) {
  const auto width = static_cast<size_t>(problem.vocabulary);
  for (size_t j = 0; j < g.c[i].size(); ++j) sum[g.rows[i][j / width] * width + j % width] += factor * g.c[i][j];
}

/// Advantages of the sequences of a list: their own, or a constant.
std::vector<double> advantages(const Enumeration& all, std::span<const size_t> list, double constant) {
  const std::vector<double> own = all.advantage();
  std::vector<double> result;
  for (const size_t s : list) result.push_back(constant == 0.0 ? own[s] : constant);
  return result;
}

/// Over single sequences. `constant` 0: the problem's own advantages.
Sums enumerate(const Enumeration& all, const Correction& correction, double constant) {
  const std::vector<size_t>& list = all.possible();
  const Gradients g = gradients(all, correction, list, advantages(all, list, constant));
  Sums sums(all.problem().entries());
  for (size_t i = 0; i < list.size(); ++i) {
    const double q = all.q()[list[i]];
    sums.weight += q;
    add_sequence(all.problem(), g, i, q, sums.first);
    sums.second += q * squared_norm(all.problem(), g.rows[i], g.c[i]);
    sums.masked += q * g.masked[i];
    sums.tokens += q * static_cast<double>(g.rows[i].size());
  }
  return sums;
}

/// Adds the estimate of one batch.
void add_batch(const Enumeration& all, const Correction& correction, std::span<const size_t> list, double constant,
               double weight, Sums& sums) {
  const Gradients g = gradients(all, correction, list, advantages(all, list, constant));
  std::vector<double> mean(all.problem().entries(), 0.0);
  for (size_t i = 0; i < list.size(); ++i) {
    add_sequence(all.problem(), g, i, 1.0 / static_cast<double>(list.size()), mean);
    sums.masked += weight * g.masked[i];
    sums.tokens += weight * static_cast<double>(g.rows[i].size());
  }
  sums.weight += weight;
  sums.second += weight * inner(all.problem(), mean, mean);
  for (size_t k = 0; k < mean.size(); ++k) sums.first[k] += weight * mean[k];
}

Sums enumerate_pairs(const Enumeration& all, const Correction& correction, double constant) {
  Sums sums(all.problem().entries());
  for (const size_t a : all.possible()) {
    for (const size_t b : all.possible()) {
      add_batch(all, correction, std::vector<size_t>{a, b}, constant, all.q()[a] * all.q()[b], sums);
    }
  }
  return sums;
}

/// One Sums per block. The same batches for every correction and constant: differences between them are less noisy.
std::vector<Sums> sample(const Enumeration& all, const Correction& correction, double constant,
                         const AuditOptions& options) {
  std::vector<double> cumulative;
  double total = 0.0;
  for (const size_t s : all.possible()) cumulative.push_back(total += all.q()[s]);
  kernels::RandomStream random({options.seed, kernels::Purpose::train, 0});
  std::vector<Sums> blocks(kBlocks, Sums(all.problem().entries()));
  std::vector<size_t> list(static_cast<size_t>(options.batch));
  for (int64_t m = 0; m < options.sampled_batches; ++m) {
    for (size_t& s : list) {
      const auto place = std::upper_bound(cumulative.begin(), cumulative.end(), random.uniform() * total);
      s = all.possible()[std::min(static_cast<size_t>(place - cumulative.begin()), cumulative.size() - 1)];
    }
    add_batch(all, correction, list, constant, 1.0, blocks[static_cast<size_t>(m % kBlocks)]);
  }
  return blocks;
}

std::vector<double> mean(const Sums& sums) {
  std::vector<double> result = sums.first;
  for (double& value : result) value /= sums.weight;
  return result;
}

struct Exact {
  std::vector<double> gradient, whole;
  double norm = 0.0;  // squared, of `gradient`
};

/// `draws` > 0: the sums are of so many independent draws, whose noise is taken off the squared means; `batch`: how
/// many independent estimates the reported mean is over.
Figures figures(const Problem& problem, const Sums& own, const Sums& up, const Sums& down, const Exact& exact,
                double draws, double batch) {
  const auto noise = [&](const Sums& sums, double norm) {
    return draws > 0 ? std::max(0.0, (sums.second / sums.weight - norm) / (draws - 1.0)) : 0.0;
  };
  const std::vector<double> m = mean(own);
  const double raw = inner(problem, m, m), noise_of_mean = noise(own, raw), norm = raw - noise_of_mean;
  const double along = inner(problem, m, exact.gradient);
  const auto bias_to = [&](const std::vector<double>& target) {
    std::vector<double> difference = m;
    for (size_t k = 0; k < m.size(); ++k) difference[k] -= target[k];
    return inner(problem, difference, difference) - noise_of_mean;
  };
  const auto drift = [&](const Sums& sums) {
    const std::vector<double> d = mean(sums);
    const double squared = inner(problem, d, d);
    return (squared - noise(sums, squared)) / exact.norm;
  };
  Figures f;
  f.bias.value = bias_to(exact.gradient) / exact.norm;
  f.bias_whole.value = bias_to(exact.whole) / exact.norm;
  f.variance.value = std::max(0.0, own.second / own.weight - norm) / batch / exact.norm;
  f.error.value = f.bias.value + f.variance.value;
  f.cosine.value = norm > 0.0 ? along / std::sqrt(norm * exact.norm) : 0.0;
  f.drift_up.value = drift(up);
  f.drift_down.value = drift(down);
  f.masked.value = own.tokens > 0.0 ? own.masked / own.tokens : 0.0;
  return f;
}

Figures sampled_figures(const Enumeration& all, const Correction& correction, const Exact& exact,
                        const AuditOptions& options) {
  const std::vector<Sums> own = sample(all, correction, 0.0, options), up = sample(all, correction, 1.0, options),
                          down = sample(all, correction, -1.0, options);
  /// All blocks but one; kBlocks: none left out.
  const auto without = [&](const std::vector<Sums>& blocks, int64_t left_out) {
    Sums sums(all.problem().entries());
    for (int64_t i = 0; i < kBlocks; ++i) {
      if (i != left_out) sums += blocks[static_cast<size_t>(i)];
    }
    return sums;
  };
  const auto figures_without = [&](int64_t left_out) {
    const Sums some = without(own, left_out);
    return figures(all.problem(), some, without(up, left_out), without(down, left_out), exact, some.weight, 1.0);
  };
  Figures result = figures_without(kBlocks);
  std::vector<Figures> parts;
  for (int64_t i = 0; i < kBlocks; ++i) parts.push_back(figures_without(i));
  constexpr double kStudent19 = 2.093;  // 97.5 % point of Student's t with kBlocks - 1 degrees of freedom
  for (const FigureName& figure : kFigures) {
    double mean = 0.0, spread = 0.0;
    for (const Figures& part : parts) mean += (part.*figure.member).value / kBlocks;
    for (const Figures& part : parts) spread += std::pow((part.*figure.member).value - mean, 2);
    (result.*figure.member).half_width = kStudent19 * std::sqrt(spread * (kBlocks - 1) / kBlocks);
  }
  result.exact = false;
  result.batches = options.sampled_batches;
  return result;
}

/// What rounding may leave of an exact gradient that is 0, squared, with a wide margin.
double rounding_of_gradient(const Enumeration& all) {
  double advantage = 0.0, score = 1.0;
  for (const double a : all.advantage()) advantage = std::max(advantage, std::abs(a));
  const size_t n = all.problem().entries();
  for (size_t i = 0; i < all.problem().gram.size(); i += n + 1) score = std::max(score, all.problem().gram[i]);
  return 1e-24 * advantage * advantage * score;
}

}  // namespace

bool has_gradient(const Enumeration& all) {
  const std::vector<double> gradient = all.exact_gradient();
  return inner(all.problem(), gradient, gradient) > rounding_of_gradient(all);
}

Figures audit(const Enumeration& all, const Correction& correction, const AuditOptions& options) {
  if (options.batch < 1) throw std::invalid_argument("a batch needs at least one sequence");
  if (options.sampled_batches < 2 * kBlocks) {
    throw std::invalid_argument("sampled batches: at least " + std::to_string(2 * kBlocks) + " are wanted");
  }
  Exact exact{all.exact_gradient(), all.exact_gradient_whole()};
  exact.norm = inner(all.problem(), exact.gradient, exact.gradient);
  if (!has_gradient(all)) {
    throw std::invalid_argument("the exact gradient is 0 (rewards that are all equal?), so nothing is relative to it");
  }
  const auto exactly = [&](auto&& sums_of, double batch) {
    return figures(all.problem(), sums_of(all, correction, 0.0), sums_of(all, correction, 1.0),
                   sums_of(all, correction, -1.0), exact, 0.0, batch);
  };
  if (correction.scope() != Scope::batch) return exactly(enumerate, static_cast<double>(options.batch));
  if (options.batch == 2 && all.possible().size() <= kMostPairs) return exactly(enumerate_pairs, 1.0);
  return sampled_figures(all, correction, exact, options);
}

std::vector<double> expected_gradient(const Enumeration& all, const Correction& correction, double constant) {
  return mean(enumerate(all, correction, constant));
}

Distance distance(const Enumeration& all) {
  const Problem& problem = all.problem();
  const auto width = static_cast<size_t>(problem.vocabulary);
  Distance d;
  double q_tokens = 0.0, p_tokens = 0.0, squared = 0.0;
  d.candidate_mass = 0.0;
  for (size_t s = 0; s < all.q().size(); ++s) {
    const Tree::Sequence& sequence = problem.tree.sequences()[s];
    const double q = all.q()[s], p = all.p()[s];
    if (q > 0.0) squared += p / q * p;
    for (size_t t = 0; t < sequence.tokens.size(); ++t) {
      const size_t at = sequence.rows[t] * width, k = at + static_cast<size_t>(sequence.tokens[t]);
      const double log_ratio = all.log_p()[k] - problem.log_q[k];
      p_tokens += p;
      if (p > 0.0) d.kl_reverse += p * log_ratio;
      if (q == 0.0) continue;
      q_tokens += q;
      d.kl -= q * log_ratio;
      d.outside += std::abs(log_ratio) > std::log(5.0) ? q : 0.0;
      d.max_ratio = std::max(d.max_ratio, std::exp(log_ratio));
      for (size_t v = 0; v < width; ++v) {
        if (problem.candidate[at + v]) d.candidate_mass += q * std::exp(problem.log_p[at + v]);
      }
    }
  }
  d.kl /= q_tokens;
  d.kl_reverse /= p_tokens;
  d.outside /= q_tokens;
  d.candidate_mass /= q_tokens;
  d.effective_samples = squared > 0.0 ? 1.0 / squared : 0.0;
  return d;
}

}  // namespace motley::algos::audit
