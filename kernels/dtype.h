// Element types of tensors, and the dispatch from a run-time type to a template.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <type_traits>

#include "kernels/formats.h"

namespace motley::kernels {

enum class DType : uint8_t { f32, f64, bf16, f16 };

constexpr size_t dtype_size(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return 4;
    case DType::f64:
      return 8;
    default:
      return 2;
  }
}
constexpr const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "fp32";
    case DType::f64:
      return "fp64";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "fp16";
  }
  return "?";
}

/// What an element is computed in: double for f64, float for all else.
template <class T>
using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;
/// The same as a run-time type: gradients of parameters, statistics and logits have it.
constexpr DType compute_dtype(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>)
    return DType::f32;
  else if constexpr (std::is_same_v<T, double>)
    return DType::f64;
  else if constexpr (std::is_same_v<T, bf16>)
    return DType::bf16;
  else
    return DType::f16;
}

/// Calls body(T{}) with the storage type of `dtype`.
template <class Body>
decltype(auto) visit_dtype(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::f32:
      return body(float{});
    case DType::f64:
      return body(double{});
    case DType::bf16:
      return body(bf16{});
    case DType::f16:
      return body(fp16{});
  }
  throw std::logic_error("visit_dtype: unknown type");
}

}  // namespace motley::kernels
