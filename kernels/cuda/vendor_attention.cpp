// Attention by cuDNN: plans by shape, and the arrays beside ours that a run needs.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>

#include "kernels/cuda/attention_graph.h"
#include "kernels/device_buffer.h"
#include "kernels/device_memory.h"
#include "kernels/vendor.h"

namespace motley::kernels::cuda {
namespace {

using cudnn::AttentionShape;
using cudnn::AttentionTensors;
using cudnn::Refusal;

/// Plans and a handle of one device, for all threads in turn: a run only queues work. Never destroyed, since the driver
/// may be gone before them.
struct Prepared {
  int device = 0;
  std::mutex mutex;
  cudnnHandle_t handle = nullptr;
  struct Compiled {
    std::optional<std::pair<cudnn::Plan, AttentionTensors>> plan;  // none: refused
    std::string why;
  };
  std::map<std::pair<AttentionShape, bool>, Compiled> plans;  // bool: backward
};
Prepared& current() {
  static std::mutex mutex;
  static auto& all = *new std::map<int, Prepared>;
  int index = 0;
  if (cudaGetDevice(&index) != cudaSuccess) throw Refusal("cuDNN: no CUDA device");
  const std::lock_guard lock(mutex);
  all[index].device = index;
  return all[index];
}

const Prepared::Compiled& compiled(Prepared& prepared, const AttentionShape& shape, bool backward) {
  const auto [at, is_new] = prepared.plans.try_emplace({shape, backward});
  if (!is_new) return at->second;
  try {
    if (prepared.handle == nullptr) cudnn::require(cudnn::api().create(&prepared.handle), "cudnnCreate");
    cudnn::AttentionGraph made = backward ? cudnn::backward_graph(shape) : cudnn::forward_graph(shape);
    at->second.plan.emplace(made.graph.compile({prepared.handle, nullptr}), made.tensors);
  } catch (const Refusal& refusal) {
    at->second.why = refusal.what();
  }
  return at->second;
}

/// Memory of the device for the length of a call.
class Room {
 public:
  explicit Room(int64_t bytes) : data_(allocate(static_cast<size_t>(bytes))) {}
  ~Room() { release(data_); }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  void* data() const { return data_; }

 private:
  void* data_;
};

/// Lengths and starts on the device.
class Places {
 public:
  Places(int device, std::span<const int32_t> starts, int64_t sequences, int64_t q_row, int64_t kv_row, int64_t heads)
      : sequences_(sequences) {
    std::vector<unsigned char> host(static_cast<size_t>(bytes()));
    auto* lengths = reinterpret_cast<int32_t*>(host.data());
    auto* offsets = reinterpret_cast<int64_t*>(host.data() + lengths_bytes());
    const auto count = static_cast<int64_t>(starts.size()) - 1;
    for (int64_t s = 0; s < sequences; ++s)
      lengths[s] = s < count ? starts[static_cast<size_t>(s) + 1] - starts[static_cast<size_t>(s)] : 0;
    for (int64_t s = 0; s <= sequences; ++s) {
      const int64_t row = starts[static_cast<size_t>(std::min(s, count))];
      offsets[s] = row * q_row;
      offsets[stride() + s] = row * kv_row;
      offsets[2 * stride() + s] = row * heads;
    }
    there_ = copied_to({DeviceKind::cuda, device}, host.data(), host.size());
  }
  void bind(const AttentionTensors& t, std::vector<std::pair<int64_t, void*>>& memory) const {
    auto* bytes = const_cast<unsigned char*>(there_.get());  // the API's arguments are not const
    memory.emplace_back(cudnn::identity(t.lengths), bytes);
    int64_t i = 0;
    for (const int tensor : {t.q_starts, t.kv_starts, t.lse_starts})
      memory.emplace_back(cudnn::identity(tensor), bytes + lengths_bytes() + i++ * stride() * 8);
  }

 private:
  // Each array begins at a multiple of 16 bytes.
  int64_t lengths_bytes() const { return (sequences_ * 4 + 15) / 16 * 16; }
  int64_t stride() const { return (sequences_ + 2) / 2 * 2; }
  int64_t bytes() const { return lengths_bytes() + 3 * stride() * 8; }

  int64_t sequences_;
  std::shared_ptr<const unsigned char> there_;
};

template <class Args>
AttentionShape shape_of(const Args& args, DType dtype, std::span<const int32_t> starts) {
  int64_t longest = 0;
  for (size_t s = 1; s < starts.size(); ++s) longest = std::max<int64_t>(longest, starts[s] - starts[s - 1]);
  return {vendor_attention_sequences(args.sequences),
          vendor_attention_length(longest),
          args.heads,
          args.kv_heads,
          args.head_dim,
          dtype == DType::bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF,
          static_cast<float>(args.scale)};
}

using Memory = std::vector<std::pair<int64_t, void*>>;

/// Calls bind(tensors, memory) for the arrays of a pass and queues it.
template <class Args, class Bind>
bool attend(const Args& args, DType dtype, std::span<const int32_t> starts, bool backward, const Bind& bind) {
  std::string why = vendor_attention_refusal(dtype, args.heads, args.kv_heads, args.head_dim, compute_capability());
  if (!why.empty()) {
    note_vendor_refusal("cuDNN has " + why);
    return false;
  }
  if (args.rows == 0) return true;
  try {
    Prepared& prepared = current();
    const std::lock_guard lock(prepared.mutex);
    const AttentionShape shape = shape_of(args, dtype, starts);
    const Prepared::Compiled& found = compiled(prepared, shape, backward);
    if (!found.plan) throw Refusal(found.why);
    const auto& [plan, tensors] = *found.plan;
    const Places places(prepared.device, starts, shape.sequences, args.heads * args.head_dim,
                        args.kv_heads * args.head_dim, args.heads);
    const Room workspace(plan.workspace);
    Memory memory;
    places.bind(tensors, memory);
    bind(tensors, memory);
    cudnn::require(cudnn::api().set_stream(prepared.handle, static_cast<cudaStream_t>(stream_in_use())),
                   "cudnnSetStream");
    cudnn::run(prepared.handle, plan, memory, workspace.data());
    return true;
  } catch (const Refusal& refusal) {
    note_vendor_refusal(refusal.what());
    return false;
  }
}

void* writable(const void* it) { return const_cast<void*>(it); }  // the API's arguments are not const

}  // namespace

std::string cudnn_library() { return cudnn::library(); }

template <class T>
bool vendor_attention(const AttentionArgs<T>& args, std::span<const int32_t> starts) {
  const Room own_lse(args.lse == nullptr ? args.rows * args.heads * 4 : 0);
  return attend(args, dtype_of<T>(), starts, false, [&](const AttentionTensors& t, Memory& memory) {
    memory.insert(memory.end(), {{cudnn::identity(t.q), writable(args.q)},
                                 {cudnn::identity(t.k), writable(args.k)},
                                 {cudnn::identity(t.v), writable(args.v)},
                                 {cudnn::identity(t.y), args.y},
                                 {cudnn::identity(t.lse), args.lse == nullptr ? own_lse.data() : args.lse}});
  });
}

template <class T>
bool vendor_attention_backward(const AttentionBackwardArgs<T>& args, std::span<const int32_t> starts) {
  const int64_t row = args.heads * args.head_dim;
  const bool shared = args.heads != args.kv_heads;
  const Room row_sums(args.rows * args.heads * 4), dq_sums(args.rows * row * 4);
  // The library's own front end gives four bytes for an element of these.
  const Room dk_heads(shared ? args.rows * row * 4 : 0), dv_heads(shared ? args.rows * row * 4 : 0);
  return attend(args, dtype_of<T>(), starts, true, [&](const AttentionTensors& t, Memory& memory) {
    memory.insert(memory.end(), {{cudnn::identity(t.q), writable(args.q)},
                                 {cudnn::identity(t.k), writable(args.k)},
                                 {cudnn::identity(t.v), writable(args.v)},
                                 {cudnn::identity(t.y), writable(args.y)},
                                 {cudnn::identity(t.lse), writable(args.lse)},
                                 {cudnn::identity(t.dy), writable(args.dy)},
                                 {cudnn::identity(t.dq), args.dq},
                                 {cudnn::identity(t.dk), args.dk},
                                 {cudnn::identity(t.dv), args.dv},
                                 {cudnn::identity(t.row_sums), row_sums.data()},
                                 {cudnn::identity(t.dq_sums), dq_sums.data()}});
    if (!shared) return;
    memory.emplace_back(cudnn::identity(t.dk_heads), dk_heads.data());
    memory.emplace_back(cudnn::identity(t.dv_heads), dv_heads.data());
  });
}

template bool vendor_attention<bf16>(const AttentionArgs<bf16>&, std::span<const int32_t>);
template bool vendor_attention<fp16>(const AttentionArgs<fp16>&, std::span<const int32_t>);
template bool vendor_attention_backward<bf16>(const AttentionBackwardArgs<bf16>&, std::span<const int32_t>);
template bool vendor_attention_backward<fp16>(const AttentionBackwardArgs<fp16>&, std::span<const int32_t>);

}  // namespace motley::kernels::cuda
