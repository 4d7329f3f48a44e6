// The numbers of a step of AdamW that all its elements share, in the type of the weights.
#pragma once

#include "kernels/math.h"
#include "kernels/pointwise.h"

namespace motley::kernels {

template <class T>
struct AdamWNumbers {
  T scale, eps, beta1, beta2, rest1, rest2, rate, inverse2, keep;
};
template <class T>
AdamWNumbers<T> adamw_numbers(const AdamWArgs<T>& args) {
  AdamWNumbers<T> n;
  n.scale = static_cast<T>(args.gradient_scale);
  n.eps = static_cast<T>(args.eps);
  n.beta1 = static_cast<T>(args.beta1);
  n.beta2 = static_cast<T>(args.beta2);
  n.rest1 = static_cast<T>(1.0 - args.beta1);
  n.rest2 = static_cast<T>(1.0 - args.beta2);
  n.rate = static_cast<T>(args.lr / (1.0 - whole_power(args.beta1, args.step)));
  n.inverse2 = static_cast<T>(1.0 / (1.0 - whole_power(args.beta2, args.step)));
  n.keep = static_cast<T>(1.0 - args.lr * args.weight_decay);
  return n;
}

}  // namespace motley::kernels
