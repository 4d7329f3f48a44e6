// cuDNN's graph API as far as attention needs it: tensors of four dimensions, operations on them, and the plan that
// runs them as one kernel. Source: cudnn_graph.h and cudnn_backend.h of cuDNN 9, and its documentation ("Graph API").
#pragma once

#include <cudnn.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace motley::kernels::cuda::cudnn {

/// cuDNN does not take a graph, or is not there: what is asked for must be computed otherwise.
struct Refusal : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The functions that are used, from libcudnn.
struct Api {
  size_t (*version)();
  cudnnStatus_t (*create)(cudnnHandle_t*);
  cudnnStatus_t (*destroy)(cudnnHandle_t);
  cudnnStatus_t (*set_stream)(cudnnHandle_t, cudaStream_t);
  void (*last_error)(char*, size_t);
  cudnnStatus_t (*create_descriptor)(cudnnBackendDescriptorType_t, cudnnBackendDescriptor_t*);
  cudnnStatus_t (*destroy_descriptor)(cudnnBackendDescriptor_t);
  cudnnStatus_t (*finalize)(cudnnBackendDescriptor_t);
  cudnnStatus_t (*set_attribute)(cudnnBackendDescriptor_t, cudnnBackendAttributeName_t, cudnnBackendAttributeType_t,
                                 int64_t, const void*);
  cudnnStatus_t (*get_attribute)(cudnnBackendDescriptor_t, cudnnBackendAttributeName_t, cudnnBackendAttributeType_t,
                                 int64_t, int64_t*, void*);
  cudnnStatus_t (*execute)(cudnnHandle_t, cudnnBackendDescriptor_t, cudnnBackendDescriptor_t);
};
/// Throws Refusal where there is no libcudnn of major version 9.
const Api& api();
/// What was found, or why nothing was, in a line.
std::string library();

/// Throws Refusal with cuDNN's own words.
void require(cudnnStatus_t status, const std::string& what);

class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type);
  cudnnBackendDescriptor_t get() const { return descriptor_.get(); }
  template <class T>
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value) {
    return set_all(name, type, 1, &value);
  }
  Descriptor& set(cudnnBackendAttributeName_t name, const Descriptor& value) {
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, value.get());
  }
  Descriptor& set_all(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                      const void* values);
  Descriptor& finalize();

 private:
  std::shared_ptr<void> descriptor_;
};

using Shape = std::array<int64_t, 4>;

struct TensorSpec {
  Shape dims, strides;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  int ragged = -1;  // a tensor [dims[0] + 1, 1, 1, 1] of where each of the first dimension begins, in elements
};

/// What a graph is compiled for: the device of a handle, or one that need not be here.
struct Target {
  cudnnHandle_t handle = nullptr;
  const Descriptor* device = nullptr;  // CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR
};

/// A compiled graph.
struct Plan {
  Descriptor plan;
  int64_t workspace = 0;                           // bytes that a run needs
  std::vector<std::pair<int64_t, float>> scalars;  // by identity
  std::vector<Descriptor> parts;                   // live as long as the plan
};

/// Tensors are named by the number that makes them. Results are virtual unless they are given a place.
class Graph {
 public:
  /// In memory of the caller's.
  int tensor(const TensorSpec& spec);
  int scalar(float value);
  /// A result that is stored nowhere.
  int temporary(const TensorSpec& spec) { return add(spec, true, false); }

  /// Sizes are the larger ones of x and y. `out` < 0: a virtual tensor of `type`.
  struct Result {
    int out = -1;
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
  };
  int pointwise(cudnnPointwiseMode_t mode, int x, int y = -1, int chosen = -1) {
    return pointwise(mode, x, y, chosen, Result());
  }
  int pointwise(cudnnPointwiseMode_t mode, int x, int y, int chosen, const Result& result);
  /// The place of each element along an axis.
  int index(int x, int64_t axis);
  /// Over the dimensions where the result has size 1, or fewer heads.
  int reduce(cudnnReduceTensorOp_t op, int x, const TensorSpec& out);
  void reduce_to(cudnnReduceTensorOp_t op, int x, int out);
  /// Sizes of the products' m, n and k in each of the first dimension; < 0: all.
  struct Lengths {
    int m = -1, n = -1, k = -1;
  };
  int matmul(int a, int b, const TensorSpec& out, const Lengths& lengths);
  void matmul_to(int a, int b, int out, const Lengths& lengths);
  /// The same elements seen otherwise.
  int reshape(int x, const TensorSpec& out);

  /// Throws Refusal.
  Plan compile(const Target& target);

 private:
  int add(const TensorSpec& spec, bool is_virtual, bool by_value);
  void add_operation(cudnnBackendDescriptorType_t type,
                     std::initializer_list<std::pair<cudnnBackendAttributeName_t, int>> tensors,
                     cudnnBackendAttributeName_t what_name, const Descriptor& what);

  std::vector<TensorSpec> specs_;
  std::vector<Descriptor> tensors_, operations_, settings_;
  std::vector<std::pair<int64_t, float>> scalars_;
};

/// The identity under which a run is given a tensor's memory.
inline int64_t identity(int tensor) { return tensor + 1; }
/// Queued on the handle's stream. `memory`: of every tensor that is not a scalar or virtual, by identity.
void run(cudnnHandle_t handle, const Plan& plan, const std::vector<std::pair<int64_t, void*>>& memory, void* workspace);

}  // namespace motley::kernels::cuda::cudnn
