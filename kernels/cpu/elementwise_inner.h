// The loops of the elementwise kernels and of RMSNorm over a piece of work, compiled once per instruction set. The
// bits are the same on each: nothing is contracted, and reductions are in 16 virtual lanes.
#pragma once

#include <tuple>

#include "kernels/adamw.h"
#include "kernels/norm.h"
#include "kernels/pointwise.h"

namespace motley::kernels::cpu {

/// Each works on elements or rows [begin, end); buffers come from the caller's thread.
template <class T>
struct ElementLoops {
  void (*silu_mul)(const SiluMulArgs<T>&, int64_t begin, int64_t end);
  void (*silu_mul_backward)(const SiluMulBackwardArgs<T>&, int64_t begin, int64_t end);
  void (*rope)(const RopeArgs<T>&, int64_t begin, int64_t end);
  void (*add)(T* y, const T* a, const T* b, int64_t count);
  void (*norm)(const RmsNormArgs<T>&, int64_t begin, int64_t end);
  void (*norm_dx)(const RmsNormBackwardArgs<T>&, int64_t begin, int64_t end);
  void (*norm_dgain)(const RmsNormBackwardArgs<T>&, int64_t begin, int64_t end);  // columns
};
using AllElementLoops = std::tuple<ElementLoops<float>, ElementLoops<double>, ElementLoops<bf16>, ElementLoops<fp16>>;
const AllElementLoops& element_loops();

template <class T>
const ElementLoops<T>& loops_of() {
  return std::get<ElementLoops<T>>(element_loops());
}

void adamw_range(const AdamWArgs<float>& args, const AdamWNumbers<float>& n, int64_t begin, int64_t end);
void adamw_range(const AdamWArgs<double>& args, const AdamWNumbers<double>& n, int64_t begin, int64_t end);
/// Sum of squares of up to 2^16 elements in double.
double square_sum(const float* x, int64_t count);

}  // namespace motley::kernels::cpu
