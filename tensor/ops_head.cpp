#include <algorithm>
#include <cmath>

#include "tensor/ops.h"
#include "tensor/ops_common.h"

namespace motley {

using kernels::Compute;
using kernels::visit_dtype;

namespace {

void check_lists(const char* what, const std::vector<int64_t>& offsets, const std::vector<int32_t>& ids, int64_t rows,
                 int64_t vocabulary) {
  const auto fail = [&](const std::string& why) { contract_failed("head", std::string(what) + " " + why); };
  if (static_cast<int64_t>(offsets.size()) != rows + 1) fail("need one offset per row and one more");
  if (offsets.front() != 0 || offsets.back() != static_cast<int64_t>(ids.size())) fail("offsets do not span the ids");
  if (!std::is_sorted(offsets.begin(), offsets.end())) fail("offsets descend");
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocabulary) {
      fail("id " + std::to_string(id) + " is outside the vocabulary of " + std::to_string(vocabulary));
    }
  }
}

std::span<const int32_t> row_ids(const std::vector<int64_t>& offsets, const std::vector<int32_t>& ids, int64_t row) {
  const auto r = static_cast<size_t>(row);
  return std::span(ids).subspan(static_cast<size_t>(offsets[r]), static_cast<size_t>(offsets[r + 1] - offsets[r]));
}

bool ascending(std::span<const int32_t> ids) {
  return std::adjacent_find(ids.begin(), ids.end(), std::greater_equal<>()) == ids.end();
}

void check_query(const HeadQuery& query, int64_t rows, int64_t vocabulary) {
  MOTLEY_CHECK(query.temperature > 0.0 && std::isfinite(query.temperature), "head",
               "the temperature must be positive: got " + std::to_string(query.temperature));
  check_lists("selected", query.selected_offsets, query.selected_ids, rows, vocabulary);
  const bool replayed = !query.candidate_offsets.empty();
  if (replayed) check_lists("candidate", query.candidate_offsets, query.candidate_ids, rows, vocabulary);
  std::vector<int32_t> sorted;
  for (int64_t row = 0; row < rows; ++row) {
    const auto where = [row] { return " in row " + std::to_string(row); };
    const auto selected = row_ids(query.selected_offsets, query.selected_ids, row);
    if (!ascending(selected)) {
      sorted.assign(selected.begin(), selected.end());
      std::sort(sorted.begin(), sorted.end());
      MOTLEY_CHECK(ascending(sorted), "head", "an id is selected twice" + where());
    }
    if (!replayed) continue;
    const auto candidates = row_ids(query.candidate_offsets, query.candidate_ids, row);
    MOTLEY_CHECK(!candidates.empty(), "head", "no candidates" + where());
    MOTLEY_CHECK(ascending(candidates), "head", "candidates do not ascend" + where());
    for (const int32_t id : selected) {
      MOTLEY_CHECK(std::binary_search(candidates.begin(), candidates.end(), id), "head",
                   "selected id " + std::to_string(id) + " is not a candidate" + where());
    }
  }
}

/// The lists of a query where the head's kernel can read them; they may be the query's own.
struct QueryLists {
  QueryLists(const Device& device, const HeadQuery& query)
      : selected_offsets(device, query.selected_offsets),
        candidate_offsets(device, query.candidate_offsets),
        selected_ids(device, query.selected_ids),
        candidate_ids(device, query.candidate_ids) {}

  ops::DeviceList<int64_t> selected_offsets, candidate_offsets;
  ops::DeviceList<int32_t> selected_ids, candidate_ids;
};

template <class T>
kernels::HeadArgs<T> arguments(const Tensor& hidden, const Tensor& weight, const HeadQuery& query,
                               const QueryLists& lists) {
  kernels::HeadArgs<T> args{};
  args.hidden = hidden.pointer<T>();
  args.weight = weight.pointer<T>();
  args.rows = hidden.dim(0);
  args.width = hidden.dim(1);
  args.vocabulary = weight.dim(0);
  args.temperature = query.temperature;
  args.vendor = query.choice == Kernels::vendor;
  args.selected = {lists.selected_offsets.data(), lists.selected_ids.data()};
  if (!query.candidate_offsets.empty()) args.candidates = {lists.candidate_offsets.data(), lists.candidate_ids.data()};
  return args;
}

constexpr int64_t kMostKeptBytes = int64_t{1} << 27;  // of logits, from the forward pass to the backward pass

template <class T>
void keep(kernels::HeadArgs<T>& args, const Tensor& logits) {
  if (!logits.defined()) return;
  args.kept_logits = logits.pointer<Compute<T>>();
  args.kept_rows = logits.dim(0);
}

/// Room for the logits of the first rows: as many as the limit allows.
Tensor room_for_logits(const Tensor& hidden, const Tensor& weight) {
  const DType compute = kernels::compute_dtype(hidden.dtype());
  const int64_t row_bytes = weight.dim(0) * static_cast<int64_t>(kernels::dtype_size(compute));
  const int64_t rows = row_bytes == 0 ? 0 : std::min(hidden.dim(0), kMostKeptBytes / row_bytes);
  return Tensor::empty({rows, weight.dim(0)}, compute);
}

/// Whether an entropy wants a gradient: what comes last in dy is theirs.
bool any_entropy(const Tensor& dy, int64_t rows) {
  const std::vector<double> values = slice(dy, dy.numel() - rows, {rows}).to_doubles();
  return std::any_of(values.begin(), values.end(), [](double value) { return value != 0.0; });
}

/// run(gradient, whether it is to be set instead of added to).
template <class Run>
void propagate_to_weight(const Tensor& weight, int64_t rows, const Run& run) {
  const DType compute = kernels::compute_dtype(weight.dtype());
  if (!weight.requires_grad()) return run(Tensor::zeros(weight.shape(), compute, weight.device()), false);
  const bool on_cpu = weight.device().kind == kernels::DeviceKind::cpu;  // whose body alone can set it
  if (on_cpu && rows > 0 && weight.grad_dtype() == compute) {
    const Tensor unset = weight.unset_chain();
    if (unset.defined()) return run(unset, true);
  }
  ops::accumulate(weight, [&](const Tensor& sum) { run(sum, false); });
}

}  // namespace

HeadResult selected_log_probs(const Tensor& hidden, const Tensor& weight, std::shared_ptr<const HeadQuery> query) {
  MOTLEY_CHECK(hidden.shape().size() == 2 && weight.shape().size() == 2 && hidden.dim(1) == weight.dim(1), "head",
               "hidden must be [rows, width] and the weight [vocabulary, width]");
  MOTLEY_CHECK(hidden.dtype() == weight.dtype(), "head", "hidden and weight have different types");
  const Device& device = ops::device_of("head", hidden, weight);
  const int64_t rows = hidden.dim(0);
  check_query(*query, rows, weight.dim(0));
  const auto selected = static_cast<int64_t>(query->selected_ids.size());
  const DType compute = kernels::compute_dtype(hidden.dtype());
  HeadResult result;
  const bool recorded = grad_enabled() && (hidden.requires_grad() || weight.requires_grad());
  const bool on_cpu = device.kind == kernels::DeviceKind::cpu;  // whose body alone keeps logits
  const Tensor logits = recorded && on_cpu ? room_for_logits(hidden, weight) : Tensor();
  const auto made = [&](int64_t count) {
    return query->log_p_only ? Tensor::zeros({count}, compute, device) : Tensor::empty({count}, compute, device);
  };
  result.both = made(selected + rows);
  result.log_outside = made(rows);
  result.lse = Tensor::empty({rows}, compute, device);
  const QueryLists lists(device, *query);
  const Tensor values = result.both.detach();  // without a node, which may be captured below
  visit_dtype(hidden.dtype(), [&]<class T>(T) {
    using C = Compute<T>;
    auto args = arguments<T>(hidden, weight, *query, lists);
    args.log_p = values.pointer<C>();
    if (!query->log_p_only) {
      args.entropy = values.pointer<C>() + selected;
      args.log_outside = result.log_outside.pointer<C>();
    }
    args.lse = result.lse.pointer<C>();
    keep(args, logits);
    MOTLEY_RUN(device, head<T>, args);
  });
  result.both =
      record("head", result.both, {hidden, weight},
             [hidden, weight, query, lists, values, lse = result.lse, logits, selected, rows](const Tensor& dy) {
               Tensor dhidden = ops::empty_like(hidden);
               const bool entropies = any_entropy(dy, rows);  // none saves the kernel its share of the work
               MOTLEY_CHECK(!entropies || !query->log_p_only, "head", "no entropies were asked for");
               const auto run = [&](const Tensor& dweight, bool sets) {
                 visit_dtype(hidden.dtype(), [&]<class T>(T) {
                   using C = Compute<T>;
                   auto args = arguments<T>(hidden, weight, *query, lists);
                   args.lse = lse.pointer<C>();
                   args.entropy = values.pointer<C>() + selected;
                   keep(args, logits);
                   const C* d_log_p = dy.pointer<C>();
                   const C* d_entropy = entropies ? d_log_p + selected : nullptr;
                   MOTLEY_RUN(hidden.device(), head_backward<T>,
                              {args, d_log_p, d_entropy, dhidden.pointer<T>(), dweight.pointer<C>(), sets});
                 });
               };
               propagate_to_weight(weight, rows, run);
               if (hidden.requires_grad()) hidden.add_grad(std::move(dhidden));
             });
  result.log_p = slice(result.both, 0, {selected});
  result.entropy = slice(result.both, selected, {rows});
  return result;
}

void head_backward(const HeadResult& result, const Tensor& d_log_p, const Tensor& d_entropy) {
  const int64_t selected = result.log_p.numel(), rows = result.entropy.numel();
  const DType compute = result.both.dtype();
  MOTLEY_CHECK(d_log_p.numel() == selected && d_log_p.dtype() == compute, "head_backward",
               "needs one cotangent per selected id, in the compute type");
  MOTLEY_CHECK(!d_entropy.defined() || (d_entropy.numel() == rows && d_entropy.dtype() == compute), "head_backward",
               "needs one entropy cotangent per row, in the compute type, or none");
  const Device& device = ops::device_of("head_backward", result.both, d_log_p);
  const size_t size = kernels::dtype_size(compute);
  const Tensor cotangents = Tensor::zeros({selected + rows}, compute, device);
  auto* bytes = static_cast<std::byte*>(cotangents.raw());
  kernels::copy_bytes(bytes, device, d_log_p.raw(), device, static_cast<size_t>(selected) * size);
  if (d_entropy.defined()) {
    ops::device_of("head_backward", d_log_p, d_entropy);
    kernels::copy_bytes(bytes + static_cast<size_t>(selected) * size, device, d_entropy.raw(), device,
                        static_cast<size_t>(rows) * size);
  }
  backward(result.both, cotangents);
}

}  // namespace motley
