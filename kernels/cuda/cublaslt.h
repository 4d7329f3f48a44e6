// cuBLASLt's matrix product as far as we use it. Everything here is column-major, as the library has it. Source:
// cublasLt.h of CUDA 13 and the cuBLAS documentation, "Using the cuBLASLt API".
#pragma once

#include <cublasLt.h>

#include <compare>
#include <cstdint>
#include <string>

namespace motley::kernels::cuda::lt {

/// A matrix of the caller's on the device, and how its product takes it.
struct Operand {
  const void* data = nullptr;
  cudaDataType_t type = CUDA_R_32F;
  int64_t rows = 0, cols = 0, stride = 0;  // of the memory: column c begins at element c * stride
  bool transposed = false;
  cublasLtMatmulMatrixScale_t scaling = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
  const void* scales = nullptr;  // of the device; null: 1
};
/// d = alpha x y + beta c, of d's size; c has d's type, and may be d.
struct Product {
  Operand x, y;
  const void* c = nullptr;
  int64_t c_stride = 0;
  void* d = nullptr;
  cudaDataType_t d_type = CUDA_R_32F;
  int64_t rows = 0, cols = 0, d_stride = 0;
  float alpha = 1.0f, beta = 0.0f;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
};

/// Queues the product on this thread's stream. Empty, or why nothing was: no library, or no algorithm for it, which is
/// found once for a shape.
std::string run(const Product& product);
/// What was found, or why nothing was, in a line.
std::string library();

/// The largest power of two, up to 256, that an address is a multiple of.
uint32_t alignment_of(const void* address);

}  // namespace motley::kernels::cuda::lt
