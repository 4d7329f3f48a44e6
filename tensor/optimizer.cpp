#include "tensor/optimizer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <stdexcept>

#include "kernels/pointwise.h"
#include "tensor/ops_common.h"

namespace motley {
namespace {

void check(const AdamWConfig& config) {
  const auto refuse = [](const std::string& why) { throw std::invalid_argument("optimizer: " + why); };
  if (!(config.lr >= 0.0) || !std::isfinite(config.lr)) refuse("lr must not be negative");
  if (!(config.beta1 >= 0.0 && config.beta1 < 1.0)) refuse("beta1 must be in [0, 1)");
  if (!(config.beta2 >= 0.0 && config.beta2 < 1.0)) refuse("beta2 must be in [0, 1)");
  if (!(config.eps > 0.0)) refuse("eps must be positive");
  if (!(config.weight_decay >= 0.0)) refuse("weight_decay must not be negative");
  if (!(config.clip_norm >= 0.0)) refuse("clip_norm must not be negative (0: no clipping)");
  if (config.warmup_steps < 0) refuse("warmup_steps must not be negative");
  if (config.schedule != "constant" && config.schedule != "linear" && config.schedule != "cosine") {
    refuse("schedule must be constant, linear or cosine: got " + config.schedule);
  }
  if (config.schedule != "constant" && config.total_steps <= config.warmup_steps) {
    refuse("schedule " + config.schedule + " needs total_steps greater than warmup_steps");
  }
}

/// The sum of squares over all gradients, in the parameters' order; one wait for the device.
double squared_norm(const std::vector<std::string>& names, Parameters& parameters) {
  if (names.empty()) return 0.0;
  const Device device = parameters.at(names[0]).device();
  const Tensor sums = Tensor::empty({static_cast<int64_t>(names.size())}, DType::f64, device);
  for (size_t i = 0; i < names.size(); ++i) {
    const Tensor gradient = parameters.at(names[i]).grad_buffer();
    double* const sum = sums.pointer<double>() + i;
    ops::device_of("optimizer", sums, gradient);
    if (gradient.dtype() == DType::f64)
      MOTLEY_RUN(device, sum_of_squares<double>, sum, gradient.pointer<double>(), gradient.numel());
    else
      MOTLEY_RUN(device, sum_of_squares<float>, sum, gradient.pointer<float>(), gradient.numel());
  }
  const Tensor on_host = sums.to(Device{});
  double total = 0.0;
  for (const double sum : on_host.span<double>()) total += sum;
  return total;
}

template <class T>
void update(const Tensor& weight, const Tensor& first, const Tensor& second, kernels::AdamWArgs<T> args) {
  args.weight = weight.pointer<T>();
  args.first = first.pointer<T>();
  args.second = second.pointer<T>();
  args.gradient = weight.grad_buffer().pointer<T>();
  args.count = weight.numel();
  MOTLEY_RUN(weight.device(), adamw<T>, args);
}

}  // namespace

AdamW::AdamW(Parameters& parameters, AdamWConfig config, LossScale loss_scale)
    : parameters_(parameters), config_(std::move(config)), loss_scale_(loss_scale) {
  check(config_);
  if (!loss_scale_.enabled) loss_scale_.scale = 1.0;
  parameters_.set_requires_grad(true);
  for (const std::string& name : parameters_.names()) {
    const Tensor& weight = parameters_.at(name);
    MOTLEY_CHECK(weight.dtype() == DType::f32 || weight.dtype() == DType::f64, "optimizer",
                 name + ": masters must be fp32 or fp64");
    first_.emplace(name, Tensor::zeros(weight.shape(), weight.dtype(), weight.device()));
    second_.emplace(name, Tensor::zeros(weight.shape(), weight.dtype(), weight.device()));
  }
}

double AdamW::learning_rate(int64_t step) const {
  if (step <= config_.warmup_steps) {
    return config_.lr * static_cast<double>(step) / static_cast<double>(config_.warmup_steps);
  }
  if (config_.schedule == "constant") return config_.lr;
  const double done = std::min(1.0, static_cast<double>(step - config_.warmup_steps) /
                                        static_cast<double>(config_.total_steps - config_.warmup_steps));
  if (config_.schedule == "linear") return config_.lr * (1.0 - done);
  return config_.lr * 0.5 * (1.0 + std::cos(std::numbers::pi * done));
}

StepOutcome AdamW::step() {
  StepOutcome outcome;
  outcome.lr = learning_rate(steps_ + 1);
  const double scaled_norm = std::sqrt(squared_norm(parameters_.names(), parameters_));
  if (!std::isfinite(scaled_norm)) {
    outcome.skipped = true;
    outcome.grad_norm = std::numeric_limits<double>::quiet_NaN();
    ++skipped_;
    loss_scale_.clean_steps = 0;
    if (loss_scale_.enabled) loss_scale_.scale = std::max(loss_scale_.minimum, loss_scale_.scale / 2.0);
    parameters_.zero_grad();
    return outcome;
  }
  outcome.grad_norm = scaled_norm / loss_scale_.scale;
  double factor = 1.0 / loss_scale_.scale;
  if (config_.clip_norm > 0.0 && outcome.grad_norm > config_.clip_norm) factor *= config_.clip_norm / outcome.grad_norm;
  ++steps_;
  for (const std::string& name : parameters_.names()) {
    Tensor& weight = parameters_.at(name);
    const double decay = weight.shape().size() == 2 ? config_.weight_decay : 0.0;
    const auto run = [&]<class T>(T) {
      kernels::AdamWArgs<T> args{};
      args.gradient_scale = factor;
      args.lr = outcome.lr;
      args.beta1 = config_.beta1;
      args.beta2 = config_.beta2;
      args.eps = config_.eps;
      args.weight_decay = decay;
      args.step = steps_;
      update<T>(weight, first_.at(name), second_.at(name), args);
    };
    if (weight.dtype() == DType::f64) {
      run(double{});
    } else {
      run(float{});
    }
  }
  parameters_.zero_grad();
  if (++loss_scale_.clean_steps >= loss_scale_.growth_interval && loss_scale_.enabled) {
    loss_scale_.scale *= 2.0;
    loss_scale_.clean_steps = 0;
  }
  return outcome;
}

AdamW::State AdamW::state() const {
  State state;
  for (const auto& [name, tensor] : first_) state.tensors.emplace("adam.first/" + name, tensor.clone(Device{}));
  for (const auto& [name, tensor] : second_) state.tensors.emplace("adam.second/" + name, tensor.clone(Device{}));
  state.numbers = {{"adam.steps", static_cast<double>(steps_)},
                   {"adam.skipped", static_cast<double>(skipped_)},
                   {"loss_scale.scale", loss_scale_.scale},
                   {"loss_scale.clean_steps", static_cast<double>(loss_scale_.clean_steps)}};
  return state;
}

void AdamW::restore(const State& state) {
  const auto tensor = [&](const std::string& name, const Tensor& like) {
    const auto found = state.tensors.find(name);
    if (found == state.tensors.end()) throw std::runtime_error("optimizer state: " + name + " is missing");
    if (found->second.shape() != like.shape() || found->second.dtype() != like.dtype()) {
      throw std::runtime_error("optimizer state: " + name + " has another shape or type than the parameter");
    }
    // A NaN would spread to the weights with the first step, and a negative second moment has no root.
    const bool second_moment = name.starts_with("adam.second/");
    for (const double value : found->second.to_doubles()) {
      if (std::isfinite(value) && !(second_moment && value < 0.0)) continue;
      throw std::runtime_error("optimizer state: " + name + " holds " + std::to_string(value) +
                               (second_moment ? ", which is no mean of squares" : ", which is no mean of gradients"));
    }
    return found->second.clone(like.device());
  };
  const auto number = [&](const std::string& name) {
    const auto found = state.numbers.find(name);
    if (found == state.numbers.end()) throw std::runtime_error("optimizer state: " + name + " is missing");
    return found->second;
  };
  std::map<std::string, Tensor> first, second;
  for (const auto& [name, like] : first_) first.emplace(name, tensor("adam.first/" + name, like));
  for (const auto& [name, like] : second_) second.emplace(name, tensor("adam.second/" + name, like));
  const auto count = [&](const std::string& name) {
    const double value = number(name);
    if (!(value >= 0 && value <= 0x1p53)) throw std::runtime_error("optimizer state: " + name + " is no count");
    return static_cast<int64_t>(value);
  };
  const int64_t steps = count("adam.steps"), skipped = count("adam.skipped");
  const int64_t clean = count("loss_scale.clean_steps");
  const double scale = number("loss_scale.scale");
  if (!(scale > 0 && std::isfinite(scale))) throw std::runtime_error("optimizer state: the loss scale is not positive");
  first_ = std::move(first);
  second_ = std::move(second);
  steps_ = steps;
  skipped_ = skipped;
  if (loss_scale_.enabled) loss_scale_.scale = scale;
  loss_scale_.clean_steps = clean;
}

}  // namespace motley
