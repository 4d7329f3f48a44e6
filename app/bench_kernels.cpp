#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <numeric>

#include "app/bench.h"
#include "app/input_error.h"
#include "kernels/attention.h"
#include "kernels/head.h"
#include "kernels/norm.h"
#include "kernels/packed_matrix.h"
#include "kernels/pointwise.h"
#include "kernels/quantize.h"
#include "kernels/sampling.h"

namespace motley::app {
namespace {

using kernels::bf16;

template <class T>
using Values = std::shared_ptr<std::vector<T>>;

template <class T>
Values<T> values(int64_t count) {
  auto out = std::make_shared<std::vector<T>>(static_cast<size_t>(count));
  for (size_t i = 0; i < out->size(); ++i)
    (*out)[i] = T(0.01f * static_cast<float>(static_cast<int64_t>(i * 7919 % 101) - 50));
  return out;
}

BenchCase made(const char* group, std::string name, double flop, double bytes, std::function<void()> call) {
  BenchCase c;
  c.row.group = group;
  c.row.name = std::move(name);
  c.row.flop = flop;
  c.row.bytes = bytes;
  c.call = std::move(call);
  return c;
}

/// Sequences of one length, heads of 64 numbers, three query heads to a head of
/// keys, in bf16.
struct AttentionSetting {
  int64_t sequences, length;
  static constexpr int64_t heads = 9, kv_heads = 3, head_dim = 64;
  int64_t rows() const { return sequences * length; }
  double scores() const {
    return static_cast<double>(sequences * heads * length) * static_cast<double>(length + 1) / 2;
  }
  std::string name() const { return fmt::format("{} x {} tokens", sequences, length); }
};

std::vector<BenchCase> attention_cases(const AttentionSetting& s) {
  constexpr double kScale = 0.125;
  const auto q = values<bf16>(s.rows() * s.heads * s.head_dim), k = values<bf16>(s.rows() * s.kv_heads * s.head_dim);
  const auto y = values<bf16>(s.rows() * s.heads * s.head_dim), dq = values<bf16>(s.rows() * s.heads * s.head_dim);
  const auto dk = values<bf16>(s.rows() * s.kv_heads * s.head_dim),
             dv = values<bf16>(s.rows() * s.kv_heads * s.head_dim);
  const auto lse = values<float>(s.rows() * s.heads);
  const auto starts = std::make_shared<std::vector<int32_t>>();
  for (int64_t i = 0; i <= s.sequences; ++i) starts->push_back(static_cast<int32_t>(i * s.length));
  const auto forward = [=] {
    kernels::AttentionArgs<bf16> args{};
    args.y = y->data(), args.lse = lse->data();
    args.q = q->data(), args.k = k->data(), args.v = k->data();
    args.starts = starts->data(), args.rows = s.rows(), args.sequences = s.sequences;
    args.heads = s.heads, args.kv_heads = s.kv_heads, args.head_dim = s.head_dim, args.scale = kScale;
    kernels::cpu::attention(args);
  };
  const auto backward = [=] {
    kernels::AttentionBackwardArgs<bf16> args{};
    args.dq = dq->data(), args.dk = dk->data(), args.dv = dv->data();
    args.dy = y->data(), args.y = y->data(), args.lse = lse->data();
    args.q = q->data(), args.k = k->data(), args.v = k->data();
    args.starts = starts->data(), args.rows = s.rows(), args.sequences = s.sequences;
    args.heads = s.heads, args.kv_heads = s.kv_heads, args.head_dim = s.head_dim, args.scale = kScale;
    kernels::cpu::attention_backward(args);
  };
  forward();  // the backward pass reads what it leaves
  const double product = 2.0 * static_cast<double>(s.head_dim) * s.scores();
  const double query = 2.0 * static_cast<double>(q->size()), key = 2.0 * static_cast<double>(k->size());
  return {made("attention", "forward, " + s.name(), 2 * product, 2 * query + 2 * key, forward),
          made("attention", "backward, " + s.name(), 5 * product, 4 * query + 4 * key, backward)};
}

BenchCase decode_case(kernels::Format format, int64_t context) {
  constexpr int64_t kHeads = 9, kKvHeads = 3, kHeadDim = 64, kPageSize = 16;
  const int64_t pages = (context + kPageSize - 1) / kPageSize;
  const int64_t bytes = pages * kPageSize * kKvHeads * kHeadDim * kernels::kv_bytes(format);
  // Codes of about 1 in every format: 0x38 is 1 in e4m3, 0x3838 and 0x38383838
  // are small.
  const auto keys = std::make_shared<kernels::LineVector<uint8_t>>(static_cast<size_t>(bytes), uint8_t{0x38});
  const auto entries = std::make_shared<kernels::LineVector<uint8_t>>(*keys);
  const auto q = values<bf16>(kHeads * kHeadDim), y = values<bf16>(kHeads * kHeadDim);
  const auto table = std::make_shared<std::vector<int32_t>>(static_cast<size_t>(pages));
  std::iota(table->begin(), table->end(), 0);
  const double read = 2.0 * static_cast<double>(context * kKvHeads * kHeadDim * kernels::kv_bytes(format));
  return made("attention", fmt::format("decode, {} cache, {} positions", kernels::format_name(format), context),
              4.0 * static_cast<double>(context * kHeads * kHeadDim), read, [=] {
                const int32_t* tables[] = {table->data()};
                const int32_t positions[] = {static_cast<int32_t>(context - 1)};
                kernels::PagedAttentionArgs<bf16> args{};
                args.y = y->data(), args.q = q->data();
                args.keys = keys->data(), args.values = entries->data();
                args.kv_format = format, args.kv_scale = 1.0;
                args.page_table = tables, args.positions = positions, args.rows = 1, args.longest = context;
                args.heads = kHeads, args.kv_heads = kKvHeads, args.head_dim = kHeadDim, args.page_size = kPageSize;
                args.scale = 0.125;
                kernels::cpu::paged_attention(args);
              });
}

std::vector<BenchCase> all_attention_cases(const BenchArguments& arguments) {
  std::vector<BenchCase> cases;
  using Settings = std::vector<AttentionSetting>;
  for (const AttentionSetting& s :
       arguments.quick ? Settings{{2, 12}} : Settings{{256, 12}, {8, 128}, {1, 1024}, {1, 4096}}) {
    for (BenchCase& c : attention_cases(s)) cases.push_back(std::move(c));
  }
  using Format = kernels::Format;
  for (const int64_t context : arguments.quick ? std::vector<int64_t>{64} : std::vector<int64_t>{1024, 16384, 262144}) {
    for (const Format format : {Format::fp32, Format::bf16, Format::fp16, Format::e4m3})
      cases.push_back(decode_case(format, context));
  }
  return cases;
}

std::vector<BenchCase> row_cases(const BenchArguments& arguments) {
  const int64_t rows = arguments.quick ? 16 : 4096, width = 576, ffn = 1536, heads = 9, head_dim = 64;
  const auto x = values<bf16>(rows * width), y = values<bf16>(rows * width), gain = values<bf16>(width);
  const auto dx = values<bf16>(rows * width), gate = values<bf16>(rows * ffn), up = values<bf16>(rows * ffn);
  const auto mixed = values<bf16>(rows * ffn), dgate = values<bf16>(rows * ffn), dup = values<bf16>(rows * ffn);
  const auto rstd = values<float>(rows), dgain = values<float>(width);
  const auto cosines = values<float>(rows * head_dim / 2);
  const auto positions = std::make_shared<std::vector<int32_t>>(static_cast<size_t>(rows));
  std::iota(positions->begin(), positions->end(), 0);
  const auto small = static_cast<double>(rows * width), large = static_cast<double>(rows * ffn);
  const std::string size = fmt::format("{} x {}", rows, width), wide = fmt::format("{} x {}", rows, ffn);
  return {
      made("rows", "RMSNorm forward, bf16 " + size, 4 * small, 4 * small,
           [=] {
             kernels::cpu::rms_norm<bf16>({y->data(), rstd->data(), x->data(), gain->data(), rows, width, 1e-6});
           }),
      made("rows", "RMSNorm backward, bf16 " + size, 8 * small, 6 * small,
           [=] {
             kernels::cpu::rms_norm_backward<bf16>(
                 {dx->data(), dgain->data(), y->data(), x->data(), gain->data(), rstd->data(), rows, width});
           }),
      made("rows", "RoPE, bf16 " + size, 3 * small, 4 * small,
           [=] {
             kernels::cpu::rope<bf16>({y->data(), x->data(), positions->data(), cosines->data(), cosines->data(), rows,
                                       heads, head_dim, false});
           }),
      made("rows", "SwiGLU forward, bf16 " + wide, 0, 6 * large,
           [=] {
             kernels::cpu::silu_mul<bf16>({mixed->data(), gate->data(), up->data(), rows * ffn});
           }),
      made("rows", "SwiGLU backward, bf16 " + wide, 0, 10 * large,
           [=] {
             kernels::cpu::silu_mul_backward<bf16>(
                 {dgate->data(), dup->data(), mixed->data(), gate->data(), up->data(), rows * ffn});
           }),
  };
}

std::vector<BenchCase> head_cases(const BenchArguments& arguments) {
  const int64_t vocabulary = arguments.quick ? 500 : 151936, width = arguments.quick ? 32 : 576;
  const int64_t rows = arguments.quick ? 4 : 64;
  const auto hidden = values<bf16>(rows * width), weight = values<bf16>(vocabulary * width);
  const auto d_hidden = values<bf16>(rows * width);
  const auto d_weight = values<float>(vocabulary * width);
  const auto log_p = values<float>(rows), entropy = values<float>(rows), lse = values<float>(rows);
  const auto offsets = std::make_shared<std::vector<int64_t>>(static_cast<size_t>(rows + 1));
  const auto ids = std::make_shared<std::vector<int32_t>>(static_cast<size_t>(rows));
  std::iota(offsets->begin(), offsets->end(), 0);
  std::iota(ids->begin(), ids->end(), 0);
  const auto args = [=] {
    kernels::HeadArgs<bf16> a{};
    a.hidden = hidden->data(), a.weight = weight->data();
    a.rows = rows, a.width = width, a.vocabulary = vocabulary, a.temperature = 1.0;
    a.selected = {offsets->data(), ids->data()};
    a.log_p = log_p->data(), a.entropy = entropy->data(), a.lse = lse->data();
    return a;
  };
  kernels::cpu::head(args());
  const auto n = static_cast<double>(vocabulary), w = static_cast<double>(width), r = static_cast<double>(rows);
  const std::string size = fmt::format("bf16, {} rows, vocabulary {}", rows, vocabulary);
  return {made("head", "forward, " + size, 2 * r * n * w, 2 * n * w, [=] { kernels::cpu::head(args()); }),
          made("head", "backward, " + size, 6 * r * n * w, 2 * n * w + 8 * n * w, [=] {
            kernels::HeadBackwardArgs<bf16> back{};
            back.forward = args();
            back.d_log_p = log_p->data();
            back.d_hidden = d_hidden->data(), back.d_weight = d_weight->data();
            kernels::cpu::head_backward(back);
          })};
}

std::vector<BenchCase> quantizer_cases(const BenchArguments& arguments) {
  const int64_t size = arguments.quick ? 128 : 2048, rows = arguments.quick ? 4 : 512;
  const auto weights = values<float>(size * size);
  const auto inputs = values<float>(rows * size), work = values<float>(rows * size);
  const auto scales = values<float>(size / 128 + 1);
  std::vector<BenchCase> cases;
  std::vector<std::string> names = arguments.profiles;
  if (names.empty()) names = {"bf16", "fp16", "fp8", "mxfp8", "mxfp4", "nvfp4", "b200-nvfp4"};
  for (const std::string& name : names) {
    const kernels::Quantization how = find_bench_profile(name).weight;
    cases.push_back(made("quantizers", fmt::format("weights {} x {}, {}", size, size, name), 0,
                         4.0 * static_cast<double>(size * size),
                         [=] { kernels::quantize(*weights, size, size, how); }));
  }
  for (const char* name : {"fp8", "mxfp8", "b200-nvfp4-w4a4"}) {
    const kernels::Quantization how = find_bench_profile(name).activation;
    cases.push_back(made("quantizers", fmt::format("activations {} x {}, {}", rows, size, name), 0,
                         8.0 * static_cast<double>(rows * size), [=] {
                           *work = *inputs;
                           for (int64_t r = 0; r < rows; ++r)
                             kernels::quantize_activation(work->data() + r * size, size, how, scales->data());
                         }));
  }
  return cases;
}

std::vector<BenchCase> optimizer_cases(const BenchArguments& arguments) {
  const int64_t count = arguments.quick ? 4096 : 16 << 20;
  const auto weight = values<float>(count), first = values<float>(count), gradient = values<float>(count);
  const auto second = std::make_shared<std::vector<float>>(static_cast<size_t>(count), 0.01f);
  return {made("optimizer", fmt::format("AdamW, {} parameters", count), 16.0 * static_cast<double>(count),
               28.0 * static_cast<double>(count), [=] {
                 kernels::AdamWArgs<float> args{};
                 args.weight = weight->data(), args.first = first->data(), args.second = second->data();
                 args.gradient = gradient->data(), args.count = count, args.gradient_scale = 1.0;
                 args.lr = 1e-6, args.beta1 = 0.9, args.beta2 = 0.95, args.eps = 1e-8, args.weight_decay = 0.0;
                 args.step = 100;
                 kernels::cpu::adamw(args);
               })};
}

std::vector<BenchCase> sampling_cases(const BenchArguments& arguments) {
  struct Setting {
    const char* name;
    kernels::SamplingRule rule;
    float spread;  // of the logits: a flat or a peaked distribution
  };
  const Setting settings[] = {{"whole vocabulary", {1.0, 1.0, 0}, 1.0f},
                              {"top-p 0.99, flat", {1.0, 0.99, 0}, 1.0f},
                              {"top-p 0.99, peaked", {1.0, 0.99, 0}, 40.0f},
                              {"top-k 50", {1.0, 1.0, 50}, 10.0f}};
  std::vector<BenchCase> cases;
  for (const int64_t vocabulary :
       arguments.quick ? std::vector<int64_t>{64} : std::vector<int64_t>{64, 32000, 151936}) {
    for (const Setting& setting : settings) {
      const auto logits = std::make_shared<std::vector<float>>(static_cast<size_t>(vocabulary));
      for (size_t i = 0; i < logits->size(); ++i)
        (*logits)[i] = setting.spread * static_cast<float>(i * 7919 % 9973) / 9973.0f;
      const auto scaled = std::make_shared<std::vector<float>>();
      cases.push_back(made("sampling", fmt::format("{}, vocabulary {}", setting.name, vocabulary), 0,
                           4.0 * static_cast<double>(vocabulary), [=, rule = setting.rule] {
                             kernels::cpu::draw_token(logits->data(), vocabulary, rule, 0.5, *scaled);
                           }));
    }
  }
  return cases;
}

/// The same cases with each number of threads.
CaseMaker with_threads(std::vector<BenchCase> (*make)(const BenchArguments&)) {
  return [make](const BenchArguments& arguments) {
    std::vector<BenchCase> all;
    const std::vector<BenchCase> cases = make(arguments);
    for (const int64_t threads : arguments.threads) {
      for (BenchCase c : cases) {
        c.row.threads = threads;
        all.push_back(std::move(c));
      }
    }
    return all;
  };
}

}  // namespace

const std::vector<std::pair<std::string, CaseMaker>>& kernel_groups() {
  static const std::vector<std::pair<std::string, CaseMaker>> groups{
      {"products", product_cases},
      {"attention", with_threads(all_attention_cases)},
      {"rows", with_threads(row_cases)},
      {"head", with_threads(head_cases)},
      {"quantizers", with_threads(quantizer_cases)},
      {"optimizer", with_threads(optimizer_cases)},
      {"sampling", with_threads(sampling_cases)},
  };
  return groups;
}

void check_kernels(const BenchArguments& arguments) {
  std::vector<std::string> names;
  for (const auto& [name, make] : kernel_groups()) names.push_back(name);
  for (const std::string& name : arguments.only) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    throw InputError({"--only " + name}, "there is no such group of kernels", "allowed: " + join(names, ", "),
                     nearest_name(name, names));
  }
  for (const std::string& name : arguments.profiles) find_bench_profile(name);
}

std::vector<BenchRow> bench_kernels(const BenchArguments& arguments) {
  std::vector<BenchRow> rows;
  for (const auto& [name, make] : kernel_groups()) {
    if (!arguments.only.empty() &&
        std::find(arguments.only.begin(), arguments.only.end(), name) == arguments.only.end())
      continue;
    for (BenchRow& row : run_cases(make(arguments), effort_of(arguments))) rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace motley::app
