// From the run-time form of a packed matrix to a template, in device code.
#pragma once

#include "kernels/cuda/gpu.h"
#include "kernels/packed_layout.h"

namespace motley::kernels::GPU_NAMESPACE {

/// Calls body<F, S>() for the form of a matrix that `pack` makes.
template <class Body>
GPU_DEVICE void visit_packed_form(const PackedCodes& b, const Body& body) {
  if (b.scaling == Scaling::nv16) {
    body.template operator()<Format::e2m1, Scaling::nv16>();
  } else if (b.scaling == Scaling::mx32) {
    if (b.format == Format::e4m3)
      body.template operator()<Format::e4m3, Scaling::mx32>();
    else if (b.format == Format::e5m2)
      body.template operator()<Format::e5m2, Scaling::mx32>();
    else
      body.template operator()<Format::e2m1, Scaling::mx32>();
  } else {
    switch (b.format) {
      case Format::bf16:
        return body.template operator()<Format::bf16, Scaling::none>();
      case Format::fp16:
        return body.template operator()<Format::fp16, Scaling::none>();
      case Format::e4m3:
        return body.template operator()<Format::e4m3, Scaling::none>();
      case Format::e5m2:
        return body.template operator()<Format::e5m2, Scaling::none>();
      case Format::e2m1:
        return body.template operator()<Format::e2m1, Scaling::none>();
      default:
        return body.template operator()<Format::fp32, Scaling::none>();
    }
  }
}

}  // namespace motley::kernels::GPU_NAMESPACE
