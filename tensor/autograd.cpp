#include <algorithm>
#include <atomic>
#include <unordered_set>
#include <utility>

#include "kernels/arrays.h"
#include "kernels/pointwise.h"
#include "tensor/ops_common.h"
#include "tensor/tensor_impl.h"

namespace motley {
namespace {

thread_local bool gradients_on = true;

void add_in_place(const Tensor& sum, const Tensor& more) {
  kernels::visit_dtype(sum.dtype(), [&]<class T>(T) {
    MOTLEY_RUN(sum.device(), add<T>, sum.pointer<T>(), sum.pointer<T>(), more.pointer<T>(), sum.numel());
  });
}

void add_rows(const Tensor& sum, const RowSums& more) {
  const ops::DeviceList<int32_t> rows(sum.device(), more.rows);
  kernels::visit_dtype(sum.dtype(), [&]<class T>(T) {
    MOTLEY_RUN(sum.device(), add_rows<T>,
               {sum.pointer<T>(), more.sums.pointer<T>(), rows.data(), rows.size(), sum.dim(1)});
  });
}

void clear(const Tensor& buffer) {
  kernels::clear_bytes(buffer.raw(), buffer.device(),
                       static_cast<size_t>(buffer.numel()) * kernels::dtype_size(buffer.dtype()));
}

}  // namespace

GradMode::GradMode(bool on) : previous_(gradients_on) { gradients_on = on; }
GradMode::~GradMode() { gradients_on = previous_; }
bool grad_enabled() { return gradients_on; }

Tensor& Tensor::set_requires_grad(bool wanted) {
  MOTLEY_CHECK(defined() && !impl_->node && !impl_->grad_owner, "set_requires_grad", "only a leaf can be asked for");
  impl_->leaf = wanted;
  impl_->grad_dtype = wanted ? kernels::compute_dtype(impl_->dtype) : impl_->dtype;
  if (!wanted) {
    impl_->grad = Tensor();
    impl_->row_sums.reset();
    impl_->grad_is_old = false;
  }
  return *this;
}

bool Tensor::requires_grad() const { return defined() && impl_->wants_grad(); }

DType Tensor::grad_dtype() const {
  MOTLEY_CHECK(defined(), "grad_dtype", "the tensor is undefined");
  return impl_->owner().grad_dtype;
}

Tensor Tensor::grad() const {
  MOTLEY_CHECK(defined(), "grad", "the tensor is undefined");
  Impl& owner = impl_->owner();
  if (std::exchange(owner.grad_is_old, false)) clear(owner.grad);
  if (owner.row_sums) add_rows(chain_buffer(), *std::exchange(owner.row_sums, nullptr));
  return owner.grad;
}

Tensor Tensor::unset_chain() const {
  MOTLEY_CHECK(defined(), "unset_chain", "the tensor is undefined");
  Impl& owner = impl_->owner();
  if (!owner.leaf || (owner.grad.defined() && !owner.grad_is_old)) return Tensor();
  if (!owner.grad.defined()) owner.grad = empty(owner.shape, owner.grad_dtype, owner.device);
  owner.grad_is_old = false;
  return owner.grad;
}

Tensor Tensor::grad_buffer() const {
  grad();
  return chain_buffer();
}

Tensor Tensor::chain_buffer() const {
  MOTLEY_CHECK(defined(), "chain_buffer", "the tensor is undefined");
  Impl& owner = impl_->owner();
  if (std::exchange(owner.grad_is_old, false)) clear(owner.grad);
  if (!owner.grad.defined()) {
    owner.grad = zeros(owner.shape, owner.grad_dtype, owner.device);
  } else if (!owner.leaf && !owner.grad_is_ours()) {
    owner.grad = owner.grad.clone();
  }
  return owner.grad;
}

Tensor::RowChain Tensor::row_chain(std::span<const int32_t> ids) const {
  MOTLEY_CHECK(defined() && shape().size() == 2, "row_chain", "needs a matrix");
  Impl& owner = impl_->owner();
  RowChain chain{Tensor(), std::vector<int32_t>(ids.begin(), ids.end())};
  if (!owner.leaf) {
    chain.sums = chain_buffer();
    return chain;
  }
  if (!owner.row_sums) {
    owner.row_sums = std::make_unique<RowSums>();
    owner.row_sums->place.assign(static_cast<size_t>(owner.shape[0]), -1);
  }
  RowSums& found = *owner.row_sums;
  for (int32_t& id : chain.places) {
    int32_t& place = found.place.at(static_cast<size_t>(id));
    if (place < 0) {
      place = static_cast<int32_t>(found.rows.size());
      found.rows.push_back(id);
    }
    id = place;
  }
  const auto rows = static_cast<int64_t>(found.rows.size());
  if (!found.sums.defined() || found.sums.dim(0) < rows) {
    const Tensor before = std::exchange(found.sums, zeros({rows, owner.shape[1]}, owner.grad_dtype, owner.device));
    if (before.defined())
      kernels::copy_bytes(found.sums.raw(), owner.device, before.raw(), owner.device,
                          static_cast<size_t>(before.numel()) * kernels::dtype_size(before.dtype()));
  }
  chain.sums = found.sums;
  return chain;
}

void Tensor::zero_grad() {
  MOTLEY_CHECK(defined(), "zero_grad", "the tensor is undefined");
  Impl& owner = impl_->owner();
  owner.grad_is_old = owner.grad.defined();
  owner.row_sums.reset();
}

void Tensor::add_grad(Tensor contribution) const {
  MOTLEY_CHECK(defined() && contribution.numel() == numel(), "add_grad", "the gradient has another size");
  Impl& owner = impl_->owner();
  ops::device_of("add_grad", *this, contribution);
  const bool ours = contribution.impl_.use_count() == 1 && contribution.impl_->data.use_count() == 1;
  if (contribution.dtype() != owner.grad_dtype) {
    Tensor converted = empty(owner.shape, owner.grad_dtype, owner.device);
    MOTLEY_RUN(owner.device, convert, converted.raw(), owner.grad_dtype, contribution.raw(), contribution.dtype(),
               numel());
    contribution = std::move(converted);
  } else if (!owner.grad.defined() && owner.leaf && !ours) {
    contribution = contribution.clone();
  }
  if (std::exchange(owner.grad_is_old, false)) clear(owner.grad);
  if (!owner.grad.defined()) {
    owner.grad = std::move(contribution);
  } else if (owner.leaf || owner.grad_is_ours()) {
    add_in_place(owner.grad, contribution);
  } else {
    owner.grad = owner.grad.clone();
    add_in_place(owner.grad, contribution);
  }
}

Tensor Tensor::growing_grad() const {
  MOTLEY_CHECK(defined(), "growing_grad", "the tensor is undefined");
  const Impl& owner = impl_->owner();
  const bool in_place = !owner.leaf && owner.grad.defined() && owner.grad_is_ours();
  return in_place ? owner.grad : Tensor();
}

Tensor record(std::string_view op, Tensor y, std::vector<Tensor> inputs, std::function<void(const Tensor&)> closure) {
  if (!gradients_on) return y;
  if (std::none_of(inputs.begin(), inputs.end(), [](const Tensor& x) { return x.requires_grad(); })) return y;
  MOTLEY_CHECK(!y.requires_grad(), op, "the result has a history already");
  static std::atomic<uint64_t> created{0};
  auto node = std::make_shared<GraphNode>();
  node->sequence = created.fetch_add(1, std::memory_order_relaxed);
  node->op = op;
  node->inputs = std::move(inputs);
  node->closure = std::move(closure);
  y.impl_->node = std::move(node);
  return y;
}

/// The tensors with a node that y depends on, last created first.
struct GraphWalk {
  using Impl = Tensor::Impl;
  static std::vector<std::shared_ptr<Impl>> collect(const Tensor& y) {
    std::vector<std::shared_ptr<Impl>> found, open{y.impl_};
    std::unordered_set<const GraphNode*> seen{y.impl_->node.get()};
    while (!open.empty()) {
      const std::shared_ptr<Impl> next = std::move(open.back());
      open.pop_back();
      MOTLEY_CHECK(!next->node->released, "backward",
                   "the graph behind a result of " + next->node->op + " was walked before and is gone");
      for (const Tensor& input : next->node->inputs) {
        const GraphNode* node = input.impl_->node.get();
        if (node && seen.insert(node).second) open.push_back(input.impl_);
      }
      found.push_back(next);
    }
    std::sort(found.begin(), found.end(),
              [](const auto& a, const auto& b) { return a->node->sequence > b->node->sequence; });
    return found;
  }
};

void backward(const Tensor& y, const Tensor& dy) {
  MOTLEY_CHECK(y.requires_grad(), "backward", "nothing that led to this tensor wants a gradient");
  MOTLEY_CHECK(dy.defined() && dy.shape() == y.shape() && dy.dtype() == y.dtype(), "backward",
               "the gradient has another shape or type than the tensor");
  ops::device_of("backward", y, dy);
  const NoGrad no_graph_of_the_gradients;
  if (!y.impl_->node) {
    y.add_grad(dy);
    return;
  }
  auto order = GraphWalk::collect(y);
  y.add_grad(dy.detach());
  for (auto& impl : order) {
    GraphNode& node = *impl->node;
    if (impl->grad.defined()) {
      const Tensor gradient = std::exchange(impl->grad, Tensor());
      node.closure(gradient);
    }
    node.released = true;
    node.closure = nullptr;
    node.inputs.clear();
    impl.reset();
  }
}

Tensor checkpoint(const Tensor& x, std::function<Tensor(const Tensor&)> body) {
  if (!grad_enabled() || !x.requires_grad()) return body(x);
  Tensor y;
  {
    const NoGrad no_graph;
    y = body(x);
  }
  MOTLEY_CHECK(y.impl_ != x.impl_ && !y.requires_grad(), "checkpoint", "the body must make a new tensor");
  return record("checkpoint", y, {x}, [x, body = std::move(body)](const Tensor& dy) {
    Tensor input = x.detach(), again;
    input.impl_->leaf = true;  // with the gradient's type of an intermediate result, which it stands for
    {
      const GradMode with_graph(true);
      again = body(input);
    }
    backward(again, dy);
    if (input.impl_->grad.defined()) x.add_grad(std::exchange(input.impl_->grad, Tensor()));
  });
}

}  // namespace motley
