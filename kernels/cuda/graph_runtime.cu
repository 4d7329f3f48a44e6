// Graphs as namespace cuda asks the CUDA runtime for them. Only nvcc compiles this file.
#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

#include "kernels/cuda/gpu.h"

namespace motley::kernels::cuda {
namespace {
cudaStream_t stream() { return static_cast<cudaStream_t>(stream_in_use()); }
}  // namespace

// Relaxed: memory of graphs is allocated meanwhile, by a stream of its own.
void begin_capture() {
  check(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
}

void* end_capture() {
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(stream(), &graph), "cudaStreamEndCapture");
  cudaGraphExec_t ready = nullptr;
  const cudaError_t status = cudaGraphInstantiateWithFlags(&ready, graph, 0);
  cudaGraphDestroy(graph);
  check(status, "cudaGraphInstantiate");
  return ready;
}

void cancel_capture() noexcept {
  cudaGraph_t graph = nullptr;
  cudaStreamEndCapture(stream(), &graph);
  if (graph != nullptr) cudaGraphDestroy(graph);
  cudaGetLastError();  // or the next launch would report it
}

void launch_graph(void* graph) {
  check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), stream()), "cudaGraphLaunch");
}
void destroy_graph(void* graph) noexcept { cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph)); }

void* allocate_at_once(size_t bytes) {
  cudaStream_t beside = nullptr;
  check(cudaStreamCreateWithFlags(&beside, cudaStreamNonBlocking), "cudaStreamCreate");
  void* memory = nullptr;
  const cudaError_t status = cudaMallocAsync(&memory, bytes > 0 ? bytes : 1, beside);
  const cudaError_t waited = cudaStreamSynchronize(beside);
  cudaStreamDestroy(beside);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    int device = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    throw std::runtime_error(out_of_memory("cuda:" + std::to_string(device), bytes, memory_use()));
  }
  check(status, "cudaMallocAsync");
  check(waited, "cudaStreamSynchronize");
  return memory;
}

}  // namespace motley::kernels::cuda
