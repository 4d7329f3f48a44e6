// pass@k of a policy on held-out problems: used by the evaluator actor and by `motley eval`.
#pragma once

#include <functional>

#include "actors/experiment.h"
#include "envs/environment.h"
#include "tensor/engine.h"

namespace motley::actors {

struct EvaluationRequest {
  int64_t prompts = 128, samples = 4, max_tokens = 32;  // prompts: of each set; max_tokens: of a reply
  std::vector<int64_t> k{1, 4};
  double temperature = 1.0, top_p = 1.0;  // temperature 0: greedy
  uint64_t seed = 0;
  std::vector<std::string> sets{envs::kFullSet};  // TaskMix::held_out_set
  int64_t threads = 4;                            // that wait for what tasks do
};
/// Of one set. A sample that failed (sandbox, scorer or engine did) counts in `failed` and `ends` alone.
struct EvaluationResult {
  std::string set;
  struct PassAt {
    double value = 0;           // mean over problems; NaN where no problem has k samples
    double standard_error = 0;  // of that mean, problems being drawn at random; NaN of fewer than two
    int64_t problems = 0;       // with at least k samples: the others are left out
  };
  std::map<int64_t, PassAt> pass_at;  // every k
  double mean_reward = 0;
  double format_error = 0;                          // share of episodes with a reply that has not the right form
  double turns = 0, tokens = 0, format_errors = 0;  // of an episode, means: replies, read and drawn, replies
  int64_t prompts = 0, samples = 0, failed = 0;
  std::map<std::string, int64_t> ends;  // how many episodes ended how; those that failed by "failed"
  std::string first_failure;            // of the failed samples, if there are any
};
/// Unbiased pass@k (arXiv 2107.03374) of c successes among n samples: 1 - C(n-c, k) / C(n, k); 1 when n - c < k.
double pass_at_k(int64_t n, int64_t c, int64_t k);
/// One result a set. A problem of several sets is played once. Uses an engine of its own with `slots` slots. A success
/// is a reward of 1. The draws depend on the seed and on (problem, sample) alone. Stops early, with no result, when
/// stop() is true. Throws TaskError: there is no such set.
std::vector<EvaluationResult> evaluate(std::shared_ptr<const SamplerWeights> weights, const envs::TaskMix& tasks,
                                       const envs::Tokenizer& tokenizer, const EvaluationRequest& request,
                                       int64_t slots, const std::function<bool()>& stop = {});

}  // namespace motley::actors
