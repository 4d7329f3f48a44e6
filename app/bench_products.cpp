#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <utility>

#include "app/bench.h"
#include "kernels/matmul.h"
#include "kernels/pointwise.h"
#include "kernels/quantized_linear.h"

namespace motley::app {
namespace {

using kernels::NumericProfile;
using kernels::QuantizedLinear;
using kernels::Scaling;

double code_bytes(kernels::Format format) {
  switch (format) {
    case kernels::Format::fp64:
      return 8;
    case kernels::Format::fp32:
      return 4;
    case kernels::Format::bf16:
    case kernels::Format::fp16:
      return 2;
    case kernels::Format::e2m1:
      return 0.5;
    default:
      return 1;
  }
}

/// Bytes of a weight as it is stored: codes, block scales and fp32 scales
/// (kernels/quantize.h).
double stored_bytes(const NumericProfile& profile, int64_t outputs, int64_t inputs) {
  const auto n = static_cast<double>(outputs), k = static_cast<double>(inputs);
  const double bytes = n * k * code_bytes(profile.weight.format);
  switch (profile.weight.scaling) {
    case Scaling::channel:
      return bytes + 4.0 * n;
    case Scaling::block128x128:
      return bytes + 4.0 * std::ceil(n / 128.0) * std::ceil(k / 128.0);
    case Scaling::mx32:
      return bytes + n * std::ceil(k / 32.0);
    case Scaling::nv16:
      return bytes + n * std::ceil(k / 16.0);
    default:
      return bytes;
  }
}

std::vector<float> small_values(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = 0.01f * static_cast<float>(static_cast<int64_t>(i * 7919 % 101) - 50);
  return values;
}

/// `values` in the type that a profile's layers exchange.
std::shared_ptr<std::vector<std::byte>> activations(const std::vector<float>& values, kernels::DType dtype) {
  auto bytes = std::make_shared<std::vector<std::byte>>(values.size() * kernels::dtype_size(dtype));
  kernels::cpu::convert(bytes->data(), dtype, values.data(), kernels::DType::f32, static_cast<int64_t>(values.size()));
  return bytes;
}

/// Weights of one shape and format, used one after the other, so that none is
/// still in a cache when its turn comes.
struct Ring {
  std::vector<QuantizedLinear> weights;
  size_t next = 0;
  const QuantizedLinear& turn() {
    next = (next + 1) % weights.size();
    return weights[next];
  }
};

std::shared_ptr<Ring> make_ring(const NumericProfile& profile, int64_t size, double footprint) {
  auto ring = std::make_shared<Ring>();
  ring->weights.emplace_back(small_values(size * size), size, size, profile);
  const auto count = static_cast<size_t>(std::ceil(footprint / stored_bytes(profile, size, size)));
  ring->weights.reserve(count);
  while (ring->weights.size() < count) ring->weights.push_back(ring->weights.front());
  return ring;
}

BenchCase stored_case(const NumericProfile& profile, const std::shared_ptr<Ring>& ring, int64_t rows, int64_t threads) {
  const int64_t n = ring->weights.front().outputs(), k = ring->weights.front().inputs();
  const auto x = activations(small_values(rows * k), profile.output);
  const auto y = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(rows * n) * 4);
  const auto element = static_cast<double>(kernels::dtype_size(profile.output));
  BenchCase c;
  c.row.group = "products";
  c.row.name = fmt::format("{} {} x {}, {} row{}", profile.name, n, k, rows, rows == 1 ? "" : "s");
  c.row.threads = threads;
  c.row.flop = 2.0 * static_cast<double>(rows * n * k);
  c.row.bytes = stored_bytes(profile, n, k) + element * static_cast<double>(rows * (n + k));
  c.row.more = {{"profile", profile.name}, {"rows", rows}, {"outputs", n}, {"inputs", k}};
  c.call = [=] { ring->turn().forward(x->data(), rows, y->data()); };
  return c;
}

BenchCase square_case(int64_t size, int64_t threads) {
  const std::vector<float> values = small_values(size * size);
  // In the pages that the peers' operands have.
  const auto a = std::make_shared<kernels::LineVector<float>>(values.begin(), values.end());
  const auto b = std::make_shared<kernels::LineVector<float>>(*a);
  const auto c_values = std::make_shared<kernels::LineVector<float>>(a->size());
  BenchCase c;
  c.row.group = "products";
  c.row.name = fmt::format("fp32 GEMM {} square", size);
  c.row.threads = threads;
  c.row.flop = 2.0 * std::pow(static_cast<double>(size), 3.0);
  c.row.bytes = 12.0 * static_cast<double>(size * size);
  c.row.more = {{"profile", "fp32"}, {"rows", size}, {"outputs", size}, {"inputs", size}, {"gemm", true}};
  c.call = [=] {
    kernels::MatmulArgs args;
    args.a = kernels::row_major(std::as_const(*a).data(), kernels::DType::f32, size, size);
    args.b = kernels::row_major(std::as_const(*b).data(), kernels::DType::f32, size, size);
    args.c = kernels::row_major(c_values->data(), kernels::DType::f32, size, size);
    kernels::cpu::matmul(args);
  };
  return c;
}

}  // namespace

std::vector<BenchCase> product_cases(const BenchArguments& arguments) {
  const bool quick = arguments.quick;
  std::vector<std::string> names = arguments.profiles;
  if (names.empty()) names = {"fp32", "bf16", "fp16", "fp8", "mxfp8", "mxfp4", "nvfp4"};
  std::vector<int64_t> batches = arguments.batches;
  if (batches.empty()) batches = quick ? std::vector<int64_t>{1, 16} : std::vector<int64_t>{1, 4, 16, 64, 512};
  std::vector<std::shared_ptr<Ring>> rings;
  for (const std::string& name : names)
    rings.push_back(make_ring(find_bench_profile(name), quick ? 256 : 2048, cold_footprint(arguments)));
  std::vector<BenchCase> cases;
  for (const int64_t threads : arguments.threads) {
    for (const int64_t size : quick ? std::vector<int64_t>{64} : std::vector<int64_t>{512, 1024, 2048})
      cases.push_back(square_case(size, threads));
    for (const int64_t rows : batches) {
      for (size_t i = 0; i < names.size(); ++i)
        cases.push_back(stored_case(find_bench_profile(names[i]), rings[i], rows, threads));
    }
  }
  return cases;
}

}  // namespace motley::app
