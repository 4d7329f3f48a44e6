// Every differentiable op at small operands: for gradient checks, low precision, and other devices.
#pragma once

#include "tests/tensor/gradcheck.h"

namespace motley::test {

/// One op as a function of its differentiable operands, with operands to try it at.
struct OpCase {
  const char* name;
  std::vector<Shape> shapes;
  Function f;
};

inline const std::vector<int32_t> kIds{2, 0, 2, 4, 2};
inline const std::vector<int64_t> kRows{1, 3, 1};
inline const std::vector<int32_t> kPositions{0, 1, 2, 0, 1, 5};
inline const std::vector<int32_t> kStarts{0, 3, 3, 4, 6};  // an empty sequence among them

inline std::vector<OpCase> op_cases() {
  const auto rope_table = [](const Tensor& x) {
    return RopeTable(6, 4, 100.0, kernels::compute_dtype(x.dtype()), x.device());
  };
  return {
      {"cast", {{2, 3}}, [](const auto& x) { return cast(x[0], x[0].dtype()); }},
      {"add", {{2, 3}, {2, 3}}, [](const auto& x) { return add(x[0], x[1]); }},
      {"mul", {{2, 3}, {2, 3}}, [](const auto& x) { return mul(x[0], x[1]); }},
      {"square", {{5}}, [](const auto& x) { return mul(x[0], x[0]); }},
      {"sum", {{2, 3}}, [](const auto& x) { return sum(mul(x[0], x[0])); }},
      {"reshape",
       {{2, 3}},
       [](const auto& x) {
         return x[0].reshape({3, 2});
       }},
      {"slice", {{2, 3}}, [](const auto& x) { return slice(mul(x[0], x[0]), 2, {3}); }},
      {"silu_mul", {{3, 5}, {3, 5}}, [](const auto& x) { return silu_mul(x[0], x[1]); }},
      {"normed_linears",
       {{3, 5}, {5}, {2, 5}},
       [](const auto& x) {
         return normed_linears(x[0], {x[1], {x[2]}, 1e-3})[0];
       }},
      {"feed_forward",
       {{3, 5}, {5}, {4, 5}, {4, 5}, {5, 4}},
       [](const auto& x) {
         return feed_forward(x[0], {x[1], x[2], x[3], x[4], 1e-3});
       }},
      {"embedding", {{5, 3}}, [](const auto& x) { return embedding(x[0], kIds); }},
      {"gather_rows", {{4, 3}}, [](const auto& x) { return gather_rows(x[0], kRows); }},
      {"rms_norm", {{3, 19}, {19}}, [](const auto& x) { return rms_norm(x[0], x[1], 1e-3); }},
      {"linear", {{5, 7}, {3, 7}}, [](const auto& x) { return linear(x[0], x[1]); }},
      {"linear in tiles", {{2, 9}, {3, 9}}, [](const auto& x) { return linear(x[0], x[1], 4); }},
      {"rope", {{6, 8}}, [=](const auto& x) { return rope(x[0], kPositions, 2, rope_table(x[0])); }},
      {"attention",
       {{6, 16}, {6, 8}, {6, 8}},
       [](const auto& x) { return attention(x[0], x[1], x[2], 4, 2, kStarts); }},
      {"attention of one head",
       {{6, 4}, {6, 4}, {6, 4}},
       [](const auto& x) {
         return attention(x[0], x[1], x[2], 1, 1, std::vector<int32_t>{0, 6});
       }},
  };
}

inline std::shared_ptr<HeadQuery> full_query() {
  auto query = std::make_shared<HeadQuery>();
  query->temperature = 0.7;
  query->selected_offsets = {0, 1, 1, 4};
  query->selected_ids = {3, 8, 0, 5};
  return query;
}

inline std::shared_ptr<HeadQuery> replayed_query() {
  auto query = full_query();
  query->candidate_offsets = {0, 3, 4, 8};
  query->candidate_ids = {1, 3, 4, 6, 0, 5, 7, 8};
  return query;
}

/// log p and entropy in one vector, through one backward pass.
inline Tensor head_values(const std::vector<Tensor>& x, const std::shared_ptr<HeadQuery>& query) {
  return selected_log_probs(x[0], x[1], query).both;
}

}  // namespace motley::test
