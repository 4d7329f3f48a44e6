#include "kernels/cuda/cublaslt.h"

#include <cuda_runtime_api.h>

#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "kernels/cuda/shared_library.h"
#include "kernels/device_memory.h"

namespace motley::kernels::cuda::lt {
namespace {

#define MOTLEY_TEXT_OF(x) #x
#define MOTLEY_TEXT(x) MOTLEY_TEXT_OF(x)
constexpr const char* kName = "libcublasLt.so." MOTLEY_TEXT(CUBLAS_VER_MAJOR);

/// What NVIDIA recommends for compute capability 9.0 and later ("cublasSetWorkspace").
constexpr uint64_t kMostWorkspace = uint64_t{32} << 20;
constexpr size_t kMostAlgorithms = 4096;  // kept; a batch of its own size has some of its own

struct Api {
  SharedLibrary library{kName};
  decltype(&cublasLtGetVersion) version;
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtMatmulDescCreate) create_product;
  decltype(&cublasLtMatmulDescDestroy) destroy_product;
  decltype(&cublasLtMatmulDescSetAttribute) set_product;
  decltype(&cublasLtMatrixLayoutCreate) create_layout;
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmul) matmul;
  Api() {
    library.load(version, "cublasLtGetVersion");
    library.load(create, "cublasLtCreate");
    library.load(create_product, "cublasLtMatmulDescCreate");
    library.load(destroy_product, "cublasLtMatmulDescDestroy");
    library.load(set_product, "cublasLtMatmulDescSetAttribute");
    library.load(create_layout, "cublasLtMatrixLayoutCreate");
    library.load(destroy_layout, "cublasLtMatrixLayoutDestroy");
    library.load(create_preference, "cublasLtMatmulPreferenceCreate");
    library.load(destroy_preference, "cublasLtMatmulPreferenceDestroy");
    library.load(set_preference, "cublasLtMatmulPreferenceSetAttribute");
    library.load(heuristic, "cublasLtMatmulAlgoGetHeuristic");
    library.load(matmul, "cublasLtMatmul");
  }
};
const Api& api() {
  static const Api it;
  return it;
}

struct Failure {
  std::string why;
};
void require(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const char* reason = status == CUBLAS_STATUS_NOT_SUPPORTED      ? " (not supported)"
                       : status == CUBLAS_STATUS_NOT_INITIALIZED  ? " (not initialized: is there a GPU?)"
                       : status == CUBLAS_STATUS_INVALID_VALUE    ? " (invalid value)"
                       : status == CUBLAS_STATUS_EXECUTION_FAILED ? " (execution failed)"
                                                                  : "";
  throw Failure{"cuBLASLt: " + std::string(what) + ": status " + std::to_string(static_cast<int>(status)) + reason};
}

template <class T>
using Owned = std::unique_ptr<std::remove_pointer_t<T>, cublasStatus_t (*)(T)>;

Owned<cublasLtMatrixLayout_t> layout(cudaDataType_t type, int64_t rows, int64_t cols, int64_t stride) {
  cublasLtMatrixLayout_t made = nullptr;
  require(api().create_layout(&made, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(cols), stride),
          "a layout");
  return {made, api().destroy_layout};
}

Owned<cublasLtMatmulDesc_t> description(const Product& p) {
  cublasLtMatmulDesc_t made = nullptr;
  require(api().create_product(&made, p.compute, CUDA_R_32F), "a product");
  Owned<cublasLtMatmulDesc_t> owned{made, api().destroy_product};
  const auto set = [&](cublasLtMatmulDescAttributes_t name, const auto& value) {
    require(api().set_product(made, name, &value, sizeof(value)), "an attribute of the product");
  };
  const auto operation = [](bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
  set(CUBLASLT_MATMUL_DESC_TRANSA, operation(p.x.transposed));
  set(CUBLASLT_MATMUL_DESC_TRANSB, operation(p.y.transposed));
  const auto scale = [&](const Operand& operand, auto mode, auto pointer) {
    if (operand.scales == nullptr) return;
    set(mode, static_cast<int32_t>(operand.scaling));
    set(pointer, operand.scales);
  };
  scale(p.x, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER);
  scale(p.y, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER);
  return owned;
}

/// All that the choice of an algorithm depends on.
auto key_of(const Product& p, int device) {
  const auto of = [](const Operand& o) {
    return std::tuple(o.type, o.rows, o.cols, o.stride, o.transposed, o.scaling, o.scales != nullptr,
                      alignment_of(o.data));
  };
  return std::tuple(device, of(p.x), of(p.y), p.c_stride, alignment_of(p.c), p.c == p.d, p.d_type, p.rows, p.cols,
                    p.d_stride, alignment_of(p.d), p.beta != 0.0f, p.compute);
}

struct Algorithm {
  cublasLtMatmulAlgo_t algorithm;
  size_t workspace = 0;
  std::string why;  // there is none; empty: there is
};

struct Layouts {
  Owned<cublasLtMatrixLayout_t> x, y, c, d;
};

Algorithm find(cublasLtHandle_t handle, const Product& p, cublasLtMatmulDesc_t product, const Layouts& layouts) {
  cublasLtMatmulPreference_t made = nullptr;
  require(api().create_preference(&made), "a preference");
  const Owned<cublasLtMatmulPreference_t> preference{made, api().destroy_preference};
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t name, const auto& value) {
    require(api().set_preference(made, name, &value, sizeof(value)), "an attribute of the preference");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMostWorkspace);
  // Parts of a cut K are added in fp32: the type of the result would lose their last bits.
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(p.x.data));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(p.y.data));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(p.c));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(p.d));
  cublasLtMatmulHeuristicResult_t result{};
  int count = 0;
  require(api().heuristic(handle, product, layouts.x.get(), layouts.y.get(), layouts.c.get(), layouts.d.get(), made, 1,
                          &result, &count),
          "no algorithm");
  if (count == 0) throw Failure{"cuBLASLt: no algorithm"};
  require(result.state, "no algorithm");
  return {result.algo, result.workspaceSize, ""};
}

/// Handles and algorithms of all devices. Never destroyed, since the driver may be gone before them.
struct Found {
  std::mutex mutex;
  std::map<int, cublasLtHandle_t> handles;
  std::map<decltype(key_of(Product(), 0)), Algorithm> algorithms;
};
Found& found() {
  static auto& it = *new Found;
  return it;
}

void queue(const Product& p) {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) throw Failure{"cuBLASLt: no CUDA device"};
  const auto product = description(p);
  const Layouts layouts{layout(p.x.type, p.x.rows, p.x.cols, p.x.stride),
                        layout(p.y.type, p.y.rows, p.y.cols, p.y.stride), layout(p.d_type, p.rows, p.cols, p.c_stride),
                        layout(p.d_type, p.rows, p.cols, p.d_stride)};
  Algorithm use;
  cublasLtHandle_t handle = nullptr;
  {
    const std::lock_guard lock(found().mutex);
    handle = found().handles[device];
    if (handle == nullptr) {
      require(api().create(&handle), "cublasLtCreate");
      found().handles[device] = handle;
    }
    if (found().algorithms.size() >= kMostAlgorithms) found().algorithms.clear();
    const auto [at, is_new] = found().algorithms.try_emplace(key_of(p, device));
    if (is_new) {
      try {
        at->second = find(handle, p, product.get(), layouts);
      } catch (const Failure& failure) {
        at->second.why = failure.why;
      }
    }
    use = at->second;
  }
  if (!use.why.empty()) throw Failure{use.why};
  struct Room {
    explicit Room(size_t bytes) : data(allocate(bytes)) {}
    ~Room() { release(data); }
    void* data;
  } const workspace(use.workspace);
  require(api().matmul(handle, product.get(), &p.alpha, p.x.data, layouts.x.get(), p.y.data, layouts.y.get(), &p.beta,
                       p.c, layouts.c.get(), p.d, layouts.d.get(), &use.algorithm, workspace.data, use.workspace,
                       static_cast<cudaStream_t>(stream_in_use())),
          "cublasLtMatmul");
}

}  // namespace

uint32_t alignment_of(const void* address) {
  const auto bits = reinterpret_cast<uintptr_t>(address) | 256u;
  return static_cast<uint32_t>(bits & (~bits + 1));
}

std::string library() {
  if (!api().library.problem().empty()) return "no cuBLASLt (" + api().library.problem() + ")";
  const size_t version = api().version();
  return "cuBLASLt " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

std::string run(const Product& product) {
  if (!api().library.problem().empty()) return "cuBLASLt: " + api().library.problem();
  try {
    queue(product);
    return {};
  } catch (const Failure& failure) {
    return failure.why;
  }
}

}  // namespace motley::kernels::cuda::lt
