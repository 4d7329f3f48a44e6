// pass@k of a policy on held-out problems: used by the evaluator actor and by `motley eval`.
#pragma once

#include <functional>

#include "actors/experiment.h"
#include "envs/environment.h"
#include "tensor/engine.h"

namespace motley::actors {

struct EvaluationRequest {
  int64_t prompts = 128, samples = 4, max_tokens = 32;
  std::vector<int64_t> k{1, 4};
  double temperature = 1.0, top_p = 1.0;  // temperature 0: greedy
  uint64_t seed = 0;
};
struct EvaluationResult {
  std::map<int64_t, double> pass_at;  // by k
  double mean_reward = 0, format_error = 0;
  int64_t prompts = 0, samples = 0, failed = 0;
  std::string first_failure;  // of the failed samples, if there are any
};
/// Unbiased pass@k (arXiv 2107.03374) of c successes among n samples: 1 - C(n-c, k) / C(n, k); 1 when n - c < k.
double pass_at_k(int64_t n, int64_t c, int64_t k);
/// Uses an engine of its own with `slots` slots. A success is a reward of 1. The draws depend on the seed and on
/// (problem, sample) alone. Stops early (and says so by prompts = 0) when stop() is true.
EvaluationResult evaluate(std::shared_ptr<const SamplerWeights> weights, const envs::TaskMix& tasks,
                          const envs::Tokenizer& tokenizer, const EvaluationRequest& request, int64_t slots,
                          const std::function<bool()>& stop = {});

}  // namespace motley::actors
