// Terms that the learner adds to the task's reward before samples are compared.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace motley::algos {

/// What becomes of replies that are too long: "keep" (nothing), "filter" (a truncated reply is compared with, but not
/// trained on), "penalty" (overlong_penalty is added to the reward). DAPO, arXiv 2503.14476, section 3.4.
const std::vector<std::string>& overlong_names();

/// DAPO, eq. 13, for a reply of `tokens`: 0 up to max_tokens - buffer, then falling linearly to -1 at max_tokens, -1
/// beyond. `buffer` in [1, max_tokens].
double overlong_penalty(int64_t tokens, int64_t max_tokens, int64_t buffer);

}  // namespace motley::algos
