// Small kernels on whole arrays that ops need beside those of kernels/pointwise.h.
#pragma once

#include "kernels/dtype.h"

namespace motley::kernels {

template <class T>
struct AddRowsArgs {    // into[rows[i]] += from[i], rounded once each, i ascending
  T* into;              // [any, cols]
  const T* from;        // [count, cols]
  const int32_t* rows;  // [count], each a row of `into`
  int64_t count, cols;
};

namespace cpu {
/// y = a b, each rounded once.
template <class T>
void multiply(T* y, const T* a, const T* b, int64_t count);
/// Every element of y becomes *value, rounded.
template <class T>
void fill(T* y, const Compute<T>* value, int64_t count);
/// The sum of x in double, element i in virtual lane i mod 16; rounded once.
template <class T>
void sum(Compute<T>* y, const T* x, int64_t count);
template <class T>
void add_rows(const AddRowsArgs<T>& args);
}  // namespace cpu
namespace cuda {
template <class T>
void multiply(T* y, const T* a, const T* b, int64_t count);
template <class T>
void fill(T* y, const Compute<T>* value, int64_t count);
template <class T>
void sum(Compute<T>* y, const T* x, int64_t count);
template <class T>
void add_rows(const AddRowsArgs<T>& args);
}  // namespace cuda
namespace emulated {
template <class T>
void multiply(T* y, const T* a, const T* b, int64_t count);
template <class T>
void fill(T* y, const Compute<T>* value, int64_t count);
template <class T>
void sum(Compute<T>* y, const T* x, int64_t count);
template <class T>
void add_rows(const AddRowsArgs<T>& args);
}  // namespace emulated
}  // namespace motley::kernels
