#include "kernels/profile.h"

#include <catch2/catch.hpp>
#include <set>

#include "kernels/philox.h"
#include "kernels/quantize.h"

using namespace motley::kernels;

TEST_CASE("profiles: names are unique, found, described in one line, and quantize", "[profile]") {
  std::set<std::string> names;
  RandomStream random({3, Purpose::data, 0, 0});
  std::vector<float> values(40 * 200), out(values.size());
  for (float& v : values) v = static_cast<float>(random.normal());
  for (const NumericProfile& profile : profiles()) {
    INFO(profile.name);
    CHECK(names.insert(profile.name).second);
    REQUIRE(find_profile(profile.name) != nullptr);
    CHECK(*find_profile(profile.name) == profile);
    CHECK(profile.invariant);
    CHECK(profile.kv_scale == 1.0);
    CHECK_FALSE(profile.source.empty());
    CHECK(describe(profile).find('\n') == std::string::npos);
    dequantize(quantize(values, 40, 200, profile.weight), out);
    double error = 0, norm = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      error += (out[i] - values[i]) * (out[i] - values[i]);
      norm += values[i] * values[i];
    }
    CHECK(error <= 0.02 * norm);  // fp4's relative error of normal values is about 0.09, squared and doubled
    CHECK_NOTHROW(check_activation(profile.activation));
  }
  CHECK(find_profile("trainer") == nullptr);
  CHECK(find_profile("b200") == nullptr);
}

TEST_CASE("profiles: the article's eight groups", "[profile]") {
  for (const char* name :
       {"b200-nvfp4", "b300-nvfp4", "h100-fp8", "h200-fp8", "h100-bf16", "h200-bf16", "a100-bf16", "rtxpro6000-bf16"}) {
    const NumericProfile* profile = find_profile(name);
    INFO(name);
    REQUIRE(profile != nullptr);
    CHECK(profile->kv_cache == Format::e4m3);
    CHECK(profile->output == DType::bf16);
    CHECK_FALSE(profile->hardware.empty());
    CHECK(profile->k_tile > 0);
    CHECK(describe(*profile).find("modelled") != std::string::npos);
    CHECK(describe(*profile).find("emulated") != std::string::npos);
  }
  const Quantization bf16{Format::bf16, Scaling::none};
  for (const char* name : {"b200-nvfp4", "b300-nvfp4"}) {
    CHECK(find_profile(name)->weight == Quantization{Format::e2m1, Scaling::nv16, true});
    CHECK(find_profile(name)->activation == bf16);
    CHECK(find_profile(std::string(name) + "-w4a4")->activation == Quantization{Format::e2m1, Scaling::nv16});
  }
  CHECK(find_profile("h100-fp8")->weight == Quantization{Format::e4m3, Scaling::block128x128});
  CHECK(find_profile("h100-fp8")->activation == Quantization{Format::e4m3, Scaling::block1x128});
  CHECK(find_profile("b200-bf16")->kv_cache == Format::bf16);
  // Equal formats, different architectures: different reduction order.
  CHECK(find_profile("a100-bf16")->k_tile != find_profile("h100-bf16")->k_tile);
  CHECK(find_profile("rtxpro6000-bf16")->k_tile != find_profile("a100-bf16")->k_tile);
}

TEST_CASE("profiles: Hopper's accumulation has names of its own", "[profile]") {
  for (const NumericProfile& profile : profiles()) {
    INFO(profile.name);
    const bool limited = profile.name.find("accumulate14") != std::string::npos;
    CHECK((profile.accumulation == Accumulation::hopper_fp8) == limited);
    CHECK((describe(profile).find("14-bit accumulation") != std::string::npos) == limited);
  }
  NumericProfile promoted = *find_profile("h100-fp8-accumulate14");
  CHECK(promoted.k_tile == 128);
  CHECK(find_profile("h100-fp8-channel-accumulate14")->k_tile == 0);
  const NumericProfile& fp32 = *find_profile("h100-fp8");
  promoted.name = fp32.name;
  promoted.accumulation = fp32.accumulation;
  promoted.k_tile = fp32.k_tile;
  promoted.source = fp32.source;
  CHECK(promoted == fp32);
}

TEST_CASE("profiles: plain formats keep one chain", "[profile]") {
  for (const char* name : {"fp32", "bf16", "fp16", "fp8", "nvfp4", "mxfp8", "mxfp4"}) {
    INFO(name);
    REQUIRE(find_profile(name) != nullptr);
    CHECK(find_profile(name)->k_tile == 0);
    CHECK(find_profile(name)->hardware.empty());
    CHECK(describe(*find_profile(name)).find("emulated") == std::string::npos);
  }
  CHECK(find_profile("fp32")->output == DType::f32);
  CHECK(find_profile("fp32")->kv_cache == Format::fp32);
  CHECK(find_profile("fp16")->output == DType::f16);
  CHECK(find_profile("fp16")->kv_cache == Format::fp16);
}
