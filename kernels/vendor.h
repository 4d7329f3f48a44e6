// NVIDIA's own kernels as bodies of a CUDA device: products by cuBLASLt, attention by cuDNN. The libraries are loaded
// when they are first asked for. They promise no order of reduction: a row's bits may depend on the batch that it is in
// (kernels = "vendor"). What they refuse or cannot compute is left to the caller, which has a kernel for it.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "kernels/attention.h"
#include "kernels/matmul.h"
#include "kernels/profile.h"
#include "kernels/vendor_codes.h"

namespace motley::kernels {

struct VendorChoice {
  VendorProduct product = VendorProduct::none;
  std::string why;  // there is none
};
/// `capability`: compute capability times ten, as 90 for 9.0. Source: cuBLAS 13 documentation, cublasLtMatmul() and
/// "Data types and scaling modes".
VendorChoice vendor_product(const NumericProfile& profile, int capability);

/// Why such a product of weights [outputs, inputs] is none of cuBLASLt's: codes need rows of multiples of 16 bytes, 128
/// inputs to a scale whole blocks. Empty: it may be.
std::string vendor_shape_refusal(VendorProduct product, int64_t outputs, int64_t inputs);

/// Why cuDNN's attention does not serve; empty: it may. cuDNN 9 documentation, "Attention"; packed sequences have known
/// faults outside of compute capability 9.x and 10.x (cudnn-frontend, sdpa_support_surface.h).
std::string vendor_attention_refusal(DType dtype, int64_t heads, int64_t kv_heads, int64_t head_dim, int capability);
/// The sizes that a plan is compiled for, which takes a second: powers of two, so that batches share plans.
int64_t vendor_attention_sequences(int64_t sequences);
int64_t vendor_attention_length(int64_t longest);

/// The words once, on the standard error: what was refused, and that our own kernel computes it.
void note_vendor_refusal(const std::string& what);

namespace cuda {
/// "cuBLASLt 13.1.0", "cuDNN 9.19.0", or why there is none.
std::string cublaslt_library();
std::string cudnn_library();

/// C = A B^T as matmul's arguments describe it, k_tile and block scales left out; packed operands are refused. An
/// element of C errs by at most K 2^-23 times the sum of its products' sizes before it is rounded. False: nothing was
/// computed.
bool vendor_matmul(const MatmulArgs& args);
/// C = A B^T of quantized operands by that product, with the finish that `finish` describes; of its operands and
/// `accumulate` nothing is looked at. An element errs by at most 2^-10 times the sum of its products' sizes before it
/// is rounded, since matrix units sum fp8 in less than fp32. False: nothing was computed.
bool vendor_matmul_codes(VendorProduct product, const VendorCodes& a, const VendorCodes& b, const MatmulArgs& finish);
/// As `attention` and `attention_backward` of fp16 and bf16. `starts`: args.starts on the host. False: nothing was
/// computed.
template <class T>
bool vendor_attention(const AttentionArgs<T>& args, std::span<const int32_t> starts);
template <class T>
bool vendor_attention_backward(const AttentionBackwardArgs<T>& args, std::span<const int32_t> starts);
}  // namespace cuda
}  // namespace motley::kernels
