// Stands for vendor_attention.cpp in a build without CUDA or cuDNN's headers: callers use their own kernel.
#include "kernels/vendor.h"

namespace motley::kernels::cuda {

std::string cudnn_library() { return "no cuDNN (not in this build)"; }

template <class T>
bool vendor_attention(const AttentionArgs<T>&, std::span<const int32_t>) {
  return false;
}
template <class T>
bool vendor_attention_backward(const AttentionBackwardArgs<T>&, std::span<const int32_t>) {
  return false;
}
template bool vendor_attention<bf16>(const AttentionArgs<bf16>&, std::span<const int32_t>);
template bool vendor_attention<fp16>(const AttentionArgs<fp16>&, std::span<const int32_t>);
template bool vendor_attention_backward<bf16>(const AttentionBackwardArgs<bf16>&, std::span<const int32_t>);
template bool vendor_attention_backward<fp16>(const AttentionBackwardArgs<fp16>&, std::span<const int32_t>);

}  // namespace motley::kernels::cuda
