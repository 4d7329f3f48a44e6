#include "kernels/arrays.h"

#include "kernels/cpu/elements.h"
#include "kernels/cpu/instantiate.h"
#include "kernels/cpu/lanes.h"
#include "kernels/parallel.h"

namespace motley::kernels::cpu {

template <class T>
void multiply(T* y, const T* a, const T* b, int64_t count) {
  parallel_for(count, kPieceElements, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] = store<T>(load(a[i]) * load(b[i]));
  });
}

template <class T>
void fill(T* y, const Compute<T>* value, int64_t count) {
  const T each = store<T>(*value);
  for (int64_t i = 0; i < count; ++i) y[i] = each;
}

template <class T>
void sum(Compute<T>* y, const T* x, int64_t count) {
  *y = static_cast<Compute<T>>(sum_lanes<double>(count, [x](int64_t i) { return static_cast<double>(load(x[i])); }));
}

template <class T>
void add_rows(const AddRowsArgs<T>& args) {
  parallel_for(args.cols, 16 + kPieceElements / (args.count + 1), [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < args.count; ++i) {
      T* into = args.into + args.rows[i] * args.cols;
      const T* from = args.from + i * args.cols;
      for (int64_t c = begin; c < end; ++c) into[c] = store<T>(load(into[c]) + load(from[c]));
    }
  });
}

#define MOTLEY_INSTANTIATE(T)                                 \
  template void multiply<T>(T*, const T*, const T*, int64_t); \
  template void fill<T>(T*, const Compute<T>*, int64_t);      \
  template void sum<T>(Compute<T>*, const T*, int64_t);       \
  template void add_rows<T>(const AddRowsArgs<T>&);
MOTLEY_FOR_EACH_TYPE(MOTLEY_INSTANTIATE)

}  // namespace motley::kernels::cpu
