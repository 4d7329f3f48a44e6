#include "kernels/cuda/cudnn_graph.h"

#include <algorithm>

#include "kernels/cuda/shared_library.h"

namespace motley::kernels::cuda::cudnn {
namespace {

/// Aligned as allocations are; what is cut out of them is a multiple of this too (kernels/cuda/vendor_attention.cpp).
constexpr int64_t kAlignment = 16;

struct Loaded {
  SharedLibrary library{"libcudnn.so.9"};
  Api api{};
  Loaded() {
    library.load(api.version, "cudnnGetVersion");
    library.load(api.create, "cudnnCreate");
    library.load(api.destroy, "cudnnDestroy");
    library.load(api.set_stream, "cudnnSetStream");
    library.load(api.last_error, "cudnnGetLastErrorString");
    library.load(api.create_descriptor, "cudnnBackendCreateDescriptor");
    library.load(api.destroy_descriptor, "cudnnBackendDestroyDescriptor");
    library.load(api.finalize, "cudnnBackendFinalize");
    library.load(api.set_attribute, "cudnnBackendSetAttribute");
    library.load(api.get_attribute, "cudnnBackendGetAttribute");
    library.load(api.execute, "cudnnBackendExecute");
  }
};
Loaded& loaded() {
  static Loaded it;
  return it;
}

Shape packed_strides(const Shape& dims) { return {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1}; }

/// The engine configurations that a heuristic proposes, best first.
std::vector<Descriptor> configurations(const Descriptor& graph, const Target& target, cudnnBackendHeurMode_t mode) {
  Descriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
      .set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
  if (target.device != nullptr) heuristic.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target.device);
  heuristic.finalize();
  int64_t count = 0;
  require(api().get_attribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count,
                              nullptr),
          "the heuristic's results");
  std::vector<Descriptor> all;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int64_t i = 0; i < count; ++i) raw.push_back(all.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).get());
  if (count == 0) return all;
  require(api().get_attribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count,
                              &count, raw.data()),
          "the heuristic's results");
  all.erase(all.begin() + std::min<int64_t>(count, static_cast<int64_t>(all.size())), all.end());
  return all;
}

}  // namespace

const Api& api() {
  const Loaded& it = loaded();
  if (!it.library.problem().empty()) throw Refusal("cuDNN: " + it.library.problem());
  return it.api;
}

std::string library() {
  const Loaded& it = loaded();
  if (!it.library.problem().empty()) return "no cuDNN (" + it.library.problem() + ")";
  const size_t version = it.api.version();
  return "cuDNN " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

void require(cudnnStatus_t status, const std::string& what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  char why[512] = "";
  api().last_error(why, sizeof(why));
  throw Refusal("cuDNN: " + what + ": status " + std::to_string(static_cast<int>(status)) +
                (why[0] == '\0' ? "" : std::string(", ") + why));
}

Descriptor::Descriptor(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t made = nullptr;
  require(api().create_descriptor(type, &made), "descriptor " + std::to_string(static_cast<int>(type)));
  descriptor_ = {made, [](void* it) { api().destroy_descriptor(it); }};
}
Descriptor& Descriptor::set_all(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                                const void* values) {
  require(api().set_attribute(get(), name, type, count, values), "attribute " + std::to_string(static_cast<int>(name)));
  return *this;
}
Descriptor& Descriptor::finalize() {
  require(api().finalize(get()), "a descriptor");
  return *this;
}

int Graph::add(const TensorSpec& spec, bool is_virtual, bool by_value) {
  const int number = static_cast<int>(specs_.size());
  Descriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, spec.type)
      .set_all(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, spec.dims.data())
      .set_all(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, spec.strides.data())
      .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, identity(number))
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, kAlignment)
      .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, is_virtual)
      .set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, by_value);
  if (spec.ragged >= 0) tensor.set(CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, tensors_[static_cast<size_t>(spec.ragged)]);
  tensors_.push_back(tensor.finalize());
  specs_.push_back(spec);
  return number;
}
int Graph::tensor(const TensorSpec& spec) { return add(spec, false, false); }
int Graph::scalar(float value) {
  const int number = add({{1, 1, 1, 1}, {1, 1, 1, 1}}, false, true);
  scalars_.emplace_back(identity(number), value);
  return number;
}

void Graph::add_operation(cudnnBackendDescriptorType_t type,
                          std::initializer_list<std::pair<cudnnBackendAttributeName_t, int>> tensors,
                          cudnnBackendAttributeName_t what_name, const Descriptor& what) {
  Descriptor operation(type);
  operation.set(what_name, what);
  for (const auto& [name, number] : tensors)
    if (number >= 0) operation.set(name, tensors_[static_cast<size_t>(number)]);
  settings_.push_back(what);
  operations_.push_back(operation.finalize());
}

int Graph::pointwise(cudnnPointwiseMode_t mode, int x, int y, int chosen, const Result& result) {
  int out = result.out;
  if (out < 0) {
    Shape dims = specs_[static_cast<size_t>(x)].dims;
    if (y >= 0)
      for (size_t i = 0; i < 4; ++i) dims[i] = std::max(dims[i], specs_[static_cast<size_t>(y)].dims[i]);
    out = temporary({dims, packed_strides(dims), result.type});
  }
  Descriptor how(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode)
      .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, result.type)
      .finalize();
  add_operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
                {{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x},
                 {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, y},
                 {CUDNN_ATTR_OPERATION_POINTWISE_TDESC, chosen},
                 {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, out}},
                CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
  return out;
}

int Graph::index(int x, int64_t axis) {
  const Shape dims = specs_[static_cast<size_t>(x)].dims;
  const int out = temporary({dims, packed_strides(dims), CUDNN_DATA_INT32});
  Descriptor how(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, CUDNN_POINTWISE_GEN_INDEX)
      .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_INT32)
      .set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, axis)
      .finalize();
  add_operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
                {{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x}, {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, out}},
                CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
  return out;
}

int Graph::reduce(cudnnReduceTensorOp_t op, int x, const TensorSpec& out) {
  const int number = temporary(out);
  reduce_to(op, x, number);
  return number;
}
void Graph::reduce_to(cudnnReduceTensorOp_t op, int x, int out) {
  Descriptor how(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  how.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, op)
      .set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT)
      .finalize();
  add_operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
                {{CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x}, {CUDNN_ATTR_OPERATION_REDUCTION_YDESC, out}},
                CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
}

int Graph::matmul(int a, int b, const TensorSpec& out, const Lengths& lengths) {
  const int number = temporary(out);
  matmul_to(a, b, number, lengths);
  return number;
}
void Graph::matmul_to(int a, int b, int out, const Lengths& lengths) {
  Descriptor how(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  how.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT)
      .set(CUDNN_ATTR_MATMUL_PADDING_VALUE, CUDNN_TYPE_DOUBLE, 0.0)
      .finalize();
  add_operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
                {{CUDNN_ATTR_OPERATION_MATMUL_ADESC, a},
                 {CUDNN_ATTR_OPERATION_MATMUL_BDESC, b},
                 {CUDNN_ATTR_OPERATION_MATMUL_CDESC, out},
                 {CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, lengths.m},
                 {CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, lengths.n},
                 {CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, lengths.k}},
                CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
}

int Graph::reshape(int x, const TensorSpec& out) {
  const int number = temporary(out);
  Descriptor operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, tensors_[static_cast<size_t>(x)])
      .set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, tensors_[static_cast<size_t>(number)]);
  operations_.push_back(operation.finalize());
  return number;
}

Plan Graph::compile(const Target& target) {
  std::vector<cudnnBackendDescriptor_t> raw;
  for (const Descriptor& operation : operations_) raw.push_back(operation.get());
  Descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  if (target.handle != nullptr) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, target.handle);
  graph
      .set_all(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(raw.size()),
               raw.data())
      .finalize();
  std::string why = "no engine is proposed";
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    for (const Descriptor& configuration : configurations(graph, target, mode)) {
      try {
        Plan made{Descriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR), 0, scalars_, {graph, configuration}};
        for (const auto* parts : {&tensors_, &operations_, &settings_})
          made.parts.insert(made.parts.end(), parts->begin(), parts->end());
        if (target.handle != nullptr) made.plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, target.handle);
        made.plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration).finalize();
        int64_t count = 0;
        require(api().get_attribute(made.plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                                    &count, &made.workspace),
                "a plan's workspace");
        return made;
      } catch (const Refusal& refusal) {
        why = refusal.what();
      }
    }
  }
  throw Refusal("cuDNN: no plan: " + why);
}

void run(cudnnHandle_t handle, const Plan& plan, const std::vector<std::pair<int64_t, void*>>& memory,
         void* workspace) {
  std::vector<int64_t> identities;
  std::vector<void*> pointers;
  for (const auto& [id, at] : memory) {
    identities.push_back(id);
    pointers.push_back(at);
  }
  for (const auto& [id, value] : plan.scalars) {
    identities.push_back(id);
    pointers.push_back(const_cast<float*>(&value));  // the API's arguments are not const; it reads the host's value
  }
  const auto count = static_cast<int64_t>(identities.size());
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set_all(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, identities.data())
      .set_all(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, pointers.data())
      .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace)
      .finalize();
  require(api().execute(handle, plan.plan.get(), pack.get()), "running attention");
}

}  // namespace motley::kernels::cuda::cudnn
