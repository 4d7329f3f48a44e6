#include "kernels/device.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "kernels/arrays.h"
#include "kernels/attention.h"
#include "kernels/device_memory.h"
#include "kernels/device_stream.h"
#include "kernels/emulator/emulator.h"
#include "kernels/head.h"
#include "kernels/matmul.h"
#include "kernels/matmul_grouped.h"
#include "kernels/norm.h"
#include "kernels/pointwise.h"
#include "kernels/quantize_device.h"
#include "kernels/sampling.h"
#include "tests/kernels/device_cases.h"

namespace motley::kernels {
namespace {

/// Three orders of blocks, warps and lanes. Sanitizers make a switch of fibers slow, up to microseconds, and the order
/// changes nothing that they look at: one is enough there. Nor is there anything for ThreadSanitizer in the lanes,
/// which run on one thread: it gets every eighth case, and two threads at once (docs/decisions.md).
#if defined(__SANITIZE_THREAD__)
const std::vector<uint64_t> kOrders{1};
constexpr size_t kEvery = 8;
#elif defined(__SANITIZE_ADDRESS__)
const std::vector<uint64_t> kOrders{1};
constexpr size_t kEvery = 1;
#else
const std::vector<uint64_t> kOrders{0, 1, 2};
constexpr size_t kEvery = 1;
#endif

constexpr Device kCpu{DeviceKind::cpu}, kEmulated{DeviceKind::emulated};

}  // namespace

TEST_CASE("a device has a name, and a wrong one says what is right") {
  for (const char* name : {"cpu", "emulated", "cuda:0", "cuda:17"}) CHECK(device_name(parse_device(name)) == name);
  CHECK(parse_device("cuda:3") == Device{DeviceKind::cuda, 3});
  for (const char* name :
       {"", "CPU", "cuda:", "cuda:-1", "cuda:01", "cuda:1x", "cuda: 1", "cuda:99999999999999", "cpu:0", "emulated:1"}) {
    INFO(name);
    CHECK_THROWS_WITH(parse_device(name), "device '" + std::string(name) + "' is none of cpu, cuda:N, emulated");
  }
  CHECK_THROWS_WITH(parse_device("cuda"), "device 'cuda' is none of cpu, cuda:N, emulated, as in cuda:0");
}

TEST_CASE("kernels of several devices: the CPU's body agrees with float64") {
  std::set<std::string> names;
  for (const DeviceCase& c : device_cases()) {
    INFO(c.name());
    CHECK(names.insert(c.name()).second);
    CHECK(c.check(c.run(kCpu)) == "");
  }
}

TEST_CASE(
    "kernels of several devices: the emulated body gives the same bits in every order, the CPU's where promised") {
  const std::vector<DeviceCase> cases = device_cases();
  for (size_t i = 0; i < cases.size(); i += kEvery) {
    const DeviceCase& c = cases[i];
    INFO(c.name());
    emulator::set_order(0);
    const Outputs want = c.run(c.cpu_bits ? kCpu : kEmulated);
    if (!c.cpu_bits) CHECK(c.check(want) == "");
    for (const uint64_t order : kOrders) {
      INFO("order " << order);
      emulator::set_order(order);
      CHECK(difference(c.run(kEmulated), want) == "");
    }
  }
  emulator::set_order(0);
}

TEST_CASE("kernels of several devices: two threads at the emulated device at once") {
  constexpr size_t kFew = 160;  // cases apart: ThreadSanitizer takes seconds for each
  const std::vector<DeviceCase> cases = device_cases();
  std::vector<Outputs> want;
  for (size_t i = 3; i < cases.size(); i += kFew) want.push_back(cases[i].run(kEmulated));
  std::vector<std::string> wrong(2);
  std::vector<std::thread> threads;
  for (std::string& what : wrong) {
    threads.emplace_back([&] {
      for (size_t n = 0; n < want.size(); ++n) what += difference(cases[3 + kFew * n].run(kEmulated), want[n]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<std::string>(2));
}

TEST_CASE("the comparison of outputs sees a bit, and no more") {
  const auto output = [](std::vector<float> values) {
    Output out{"y", Output::Kind::f32, std::vector<unsigned char>(values.size() * 4)};
    std::copy_n(reinterpret_cast<const unsigned char*>(values.data()), out.bytes.size(), out.bytes.begin());
    return Outputs{out};
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(difference(output({1, 2}), output({1, 2})) == "");
  CHECK(difference(output({nan}), output({-nan})) == "");
  CHECK(difference(output({0.0f}), output({-0.0f})) == "y[0]: got 0x0p+0, want -0x0p+0");
  CHECK(difference(output({1, 2}), output({1, std::nextafter(2.0f, 3.0f)})) == "y[1]: got 0x1p+1, want 0x1.000002p+1");
  CHECK(difference(output({1}), output({1, 2})) == "y: another size");
  CHECK(difference({}, output({1})) == "another number of outputs");
  CHECK(beyond("y", 3, nan, nan, 1.0) != "");
  CHECK(beyond("y", 3, 1.0, 1.5, 0.4) == "y[3]: got 1, want 1.5 within 0.4");
}

TEST_CASE("what has no body on a device is refused") {
  QuantizeArgs weights{nullptr, nullptr, nullptr, nullptr, 0, 0, {Format::e4m3, Scaling::none}, 0.0f};
  CHECK_THROWS_WITH(emulated::quantize(weights), "quantize: a plain cast is convert's");
  weights.how = {Format::bf16, Scaling::channel};
  CHECK_THROWS_WITH(emulated::quantize(weights), "quantize: scales are for e4m3, e5m2 and e2m1, not bf16");
  const QuantizeActivationsArgs rows{nullptr, nullptr, nullptr, 0, 0, {Format::e4m3, Scaling::block128x128}};
  CHECK_THROWS_WITH(emulated::quantize_activations(rows), "quantize: 128x128 blocks of activations would mix tokens");
}

TEST_CASE("what no product of a device takes is refused") {
  const std::string mixed = "matmul: float64 mixed with another type";
  const PackedMatrix packed;
  MatmulArgs args;
  args.packed = &packed;
  CHECK_THROWS_WITH(emulated::matmul(args), "matmul: a device reads packed_codes, not the host's packed matrix");
  args.packed = nullptr;
  args.a.dtype = DType::f64;
  CHECK_THROWS_WITH(emulated::matmul(args), mixed);
  args.c.dtype = DType::f64;
  CHECK_THROWS_WITH(emulated::matmul(args), mixed);
  args.b.dtype = DType::f64;
  CHECK_NOTHROW(emulated::matmul(args));
  args.alpha = 2.0f;
  CHECK_THROWS_WITH(emulated::matmul(args), "matmul: a float64 product has no finish");
  const float scale = 1;
  args.a_scales = &scale;
  CHECK_THROWS_WITH(emulated::matmul(args), "matmul: a float64 product takes plain float64 operands");
}

TEST_CASE("a build without CUDA says so") {
  if (cuda::built()) return;
  CHECK(cuda::device_count() == 0);
  const auto says = Catch::Contains("built without CUDA");
  CHECK_THROWS_WITH(cuda::use_device(0), says);
  CHECK_THROWS_WITH(cuda::allocate(1), says);
  CHECK_THROWS_WITH(cuda::synchronize(), says);
  CHECK_THROWS_WITH(cuda::memory_use(), says);
  CHECK_THROWS_WITH(cuda::trim(), says);
  CHECK_THROWS_WITH(cuda::allocate_pinned(1), says);
  CHECK_THROWS_WITH(cuda::copy_in_async(nullptr, nullptr, 0), says);
  CHECK_THROWS_WITH(cuda::copy_out_async(nullptr, nullptr, 0), says);
  CHECK_THROWS_WITH(cuda::copy_from_peer(nullptr, nullptr, 0, 0), says);
  CHECK_THROWS_WITH(Stream(Device{DeviceKind::cuda, 0}), says);
  CHECK_THROWS_WITH(Event(Device{DeviceKind::cuda, 0}), says);
  CHECK_THROWS_WITH(PinnedBytes(Device{DeviceKind::cuda, 0}, 4), says);
  CHECK_THROWS_WITH(cuda::copy(nullptr, nullptr, 0), says);
  CHECK_THROWS_WITH(cuda::clear(nullptr, 0), says);
  CHECK_THROWS_WITH(cuda::multiply<fp16>(nullptr, nullptr, nullptr, 0), says);
  CHECK_THROWS_WITH(cuda::fill<bf16>(nullptr, nullptr, 0), says);
  CHECK_THROWS_WITH(cuda::sum<float>(nullptr, nullptr, 0), says);
  CHECK_THROWS_WITH(cuda::add_rows(AddRowsArgs<double>{}), says);
  CHECK_THROWS_WITH(cuda::rms_norm(RmsNormArgs<float>{}), says);
  CHECK_THROWS_WITH(cuda::rms_norm_backward(RmsNormBackwardArgs<bf16>{}), says);
  CHECK_THROWS_WITH(cuda::attention(AttentionArgs<float>{}), says);
  CHECK_THROWS_WITH(cuda::attention_backward(AttentionBackwardArgs<bf16>{}), says);
  CHECK_THROWS_WITH(cuda::paged_attention(PagedAttentionArgs<fp16>{}), says);
  CHECK_THROWS_WITH(cuda::head(HeadArgs<double>{}), says);
  CHECK_THROWS_WITH(cuda::head_backward(HeadBackwardArgs<fp16>{}), says);
  CHECK_THROWS_WITH(cuda::matmul(MatmulArgs{}), says);
  CHECK_THROWS_WITH(cuda::matmul_units(MatmulArgs{}), says);
  CHECK_THROWS_WITH(cuda::matmul_grouped(GroupedMatmulArgs{}), says);
  CHECK_THROWS_WITH(cuda::matmul_grouped_units(GroupedMatmulArgs{}), says);
  CHECK_THROWS_WITH(cuda::compute_capability(), says);
  CHECK_THROWS_WITH(cuda::warpgroup_refusal(), says);
  CHECK_THROWS_WITH(cuda::log_sum_exp<float>(nullptr, nullptr, 0, 0), says);
  CHECK_THROWS_WITH(cuda::log_sum_exp<double>(nullptr, nullptr, 0, 0), says);
  CHECK_THROWS_WITH(cuda::cache_write(CacheWriteArgs<bf16>{}), says);
  CHECK_THROWS_WITH(cuda::draw_token(DrawTokenArgs{}), says);
  CHECK_THROWS_WITH(cuda::most_probable(MostProbableArgs{}), says);
  CHECK_THROWS_WITH(cuda::silu_mul(SiluMulArgs<float>{}), says);
  CHECK_THROWS_WITH(cuda::silu_mul_backward(SiluMulBackwardArgs<float>{}), says);
  CHECK_THROWS_WITH(cuda::rope(RopeArgs<bf16>{}), says);
  CHECK_THROWS_WITH(cuda::embedding(EmbeddingArgs<double>{}), says);
  CHECK_THROWS_WITH(cuda::embedding_backward(EmbeddingBackwardArgs<fp16>{}), says);
  CHECK_THROWS_WITH(cuda::adamw(AdamWArgs<float>{}), says);
  CHECK_THROWS_WITH(cuda::adamw(AdamWArgs<double>{}), says);
  CHECK_THROWS_WITH(cuda::add<float>(nullptr, nullptr, nullptr, 0), says);
  CHECK_THROWS_WITH(cuda::convert(nullptr, DType::f32, nullptr, DType::f64, 0), says);
  CHECK_THROWS_WITH(cuda::round_values<bf16>(nullptr, nullptr, Format::e4m3, 1.0, 0), says);
  CHECK_THROWS_WITH(cuda::sum_of_squares<float>(nullptr, nullptr, 0), says);
  CHECK_THROWS_WITH(cuda::quantize(QuantizeArgs{}), says);
  CHECK_THROWS_WITH(cuda::quantize_activations(QuantizeActivationsArgs{}), says);
}

TEST_CASE("docs/ops.md is what the declarations and the table say") {
  std::ifstream in(MOTLEY_SOURCE_DIR "/docs/ops.md");
  std::ostringstream text;
  text << in.rdbuf();
  INFO("write it again with: make ops");
  CHECK(text.str() == support_page(MOTLEY_SOURCE_DIR));
}
namespace {

/// The names that `pattern` finds in the CUDA sources or in a page.
std::set<std::string> names_in(const std::string& file, const std::regex& pattern) {
  std::ifstream in(file);
  std::ostringstream text;
  text << in.rdbuf();
  const std::string all = text.str();
  std::set<std::string> names;
  for (std::sregex_iterator i(all.begin(), all.end(), pattern), end; i != end; ++i) names.insert((*i)[1]);
  return names;
}

}  // namespace

TEST_CASE("docs/cuda-report.md lists every CUDA kernel, and none that is gone") {
  static const std::regex kernel(R"(GPU_(?:KERNEL|BOUNDED_KERNEL\([^\n]*\))\s+void (\w+)\()"),
      row(R"(\n\| (\w+_kernel)\b)");
  std::set<std::string> kernels;
  for (const auto& entry : std::filesystem::directory_iterator(MOTLEY_SOURCE_DIR "/kernels/cuda"))
    kernels.merge(names_in(entry.path().string(), kernel));
  INFO("write it again with: make cuda-report");
  CHECK(kernels.size() > 40);
  CHECK(names_in(MOTLEY_SOURCE_DIR "/docs/cuda-report.md", row) == kernels);
}

TEST_CASE("write docs/ops.md", "[.write-ops]") {
  std::ofstream(MOTLEY_SOURCE_DIR "/docs/ops.md") << support_page(MOTLEY_SOURCE_DIR);
}

}  // namespace motley::kernels
