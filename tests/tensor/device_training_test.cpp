// Training on another device must give the CPU's bits.
#include <catch2/catch.hpp>

#include "tensor/model_file.h"
#include "tensor/optimizer.h"
#include "tests/temporary_folder.h"
#include "tests/tensor/tiny_model.h"

using namespace motley;
using namespace motley::test;

namespace {

struct Trained {
  std::vector<double> losses, norms;
  std::map<std::string, uint64_t> weights;
  bool operator==(const Trained&) const = default;
};

AdamWConfig settings() {
  AdamWConfig config;
  config.lr = 0.01;
  config.weight_decay = 0.1;
  config.clip_norm = 0.5;
  return config;
}

/// One step, with the loss scale that fp16 has.
void step(const TransformerConfig& config, Parameters& parameters, AdamW& optimizer, DType output, Trained& into) {
  const auto sequences = tiny_sequences();
  const double scale = optimizer.loss_scale().enabled ? optimizer.loss_scale().scale : 1.0;
  into.losses.push_back(trainer_pass(config, parameters, plain_profile(output), std::span(sequences).first(3), scale));
  into.norms.push_back(optimizer.step().grad_norm);
}

Trained train(const Device& device, DType master, DType output, const Variant& variant) {
  const TransformerConfig config = tiny_model(variant);
  Parameters parameters = Parameters::initialize(config, 3, master).clone(device);
  AdamW optimizer(parameters, settings(), {.enabled = output == DType::f16, .scale = 256.0});
  Trained result;
  for (int i = 0; i < 2; ++i) step(config, parameters, optimizer, output, result);
  for (const std::string& name : parameters.names()) CHECK(parameters.at(name).device() == device);
  result.weights = parameters.fingerprints();
  return result;
}

}  // namespace

TEST_CASE("training on the other device has the CPU's bits", "[device]") {
  const Device there = other_device();
  const Variant variant = GENERATE(Variant{true, false}, Variant{false, true});
  int trained = 0;
  for (const auto& [master, output] : std::vector<std::pair<DType, DType>>{
           {DType::f32, DType::f32}, {DType::f32, DType::bf16}, {DType::f32, DType::f16}, {DType::f64, DType::f64}}) {
    if (enough(trained++)) break;
    INFO(kernels::dtype_name(output) << (variant.tied_head ? ", tied" : ", QK-norm, untied"));
    CHECK(train(there, master, output, variant) == train(kCpu, master, output, variant));
  }
}

TEST_CASE("training moves between devices with its checkpoint, and goes on with the same bits", "[device]") {
  const Device there = other_device();
  const TransformerConfig config = tiny_model();
  const auto fresh = [&] { return Parameters::initialize(config, 5); };
  const TemporaryFolder folder;
  Trained moved, stayed;
  {
    Parameters parameters = fresh().clone(there);
    AdamW optimizer(parameters, settings());
    step(config, parameters, optimizer, DType::bf16, moved);
    save_model(folder.path(), config, parameters);
    const AdamW::State state = optimizer.state();
    for (const auto& [name, tensor] : state.tensors) CHECK(tensor.device() == kCpu);
    write_tensors(folder.path() / "optimizer.safetensors", {state.tensors, {}});
    Parameters loaded = load_model(folder.path()).parameters;
    AdamW resumed(loaded, settings());
    resumed.restore({read_tensors(folder.path() / "optimizer.safetensors").tensors, state.numbers});
    step(config, loaded, resumed, DType::bf16, moved);
    Parameters back = loaded.clone(there);
    AdamW again(back, settings());
    again.restore(resumed.state());
    step(config, back, again, DType::bf16, moved);
    moved.weights = back.fingerprints();
  }
  Parameters parameters = fresh();
  AdamW optimizer(parameters, settings());
  for (int i = 0; i < 3; ++i) step(config, parameters, optimizer, DType::bf16, stayed);
  stayed.weights = parameters.fingerprints();
  CHECK(moved == stayed);
}
