// RMSNorm over rows. Contract: a row is reduced in 16 virtual lanes in an order fixed by its length.
#pragma once

#include "kernels/dtype.h"

namespace motley::kernels {

template <class T>
struct RmsNormArgs {
  T* y;              // [rows, cols]
  Compute<T>* rstd;  // [rows], 1 / sqrt(mean(x^2) + eps); may be null
  const T* x;        // [rows, cols]
  const T* gain;     // [cols]
  int64_t rows, cols;
  double eps;
};
template <class T>
struct RmsNormBackwardArgs {
  T* dx;                   // [rows, cols], set
  Compute<T>* dgain;       // [cols], accumulated with rows ascending: the chain continues from what is there
  const T* dy;             // [rows, cols]
  const T* x;              // [rows, cols]
  const T* gain;           // [cols]
  const Compute<T>* rstd;  // [rows]
  int64_t rows, cols;
};

namespace cpu {
template <class T>
void rms_norm(const RmsNormArgs<T>& args);
template <class T>
void rms_norm_backward(const RmsNormBackwardArgs<T>& args);
}  // namespace cpu
namespace cuda {
template <class T>
void rms_norm(const RmsNormArgs<T>& args);
template <class T>
void rms_norm_backward(const RmsNormBackwardArgs<T>& args);
}  // namespace cuda
namespace emulated {
template <class T>
void rms_norm(const RmsNormArgs<T>& args);
template <class T>
void rms_norm_backward(const RmsNormBackwardArgs<T>& args);
}  // namespace emulated
}  // namespace motley::kernels
