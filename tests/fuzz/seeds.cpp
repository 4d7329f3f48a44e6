#include "tests/fuzz/seeds.h"

#include <fmt/format.h>

#include <limits>
#include <msgpack.hpp>
#include <nlohmann/json.hpp>

#include "actors/remote/evaluation_wire.h"
#include "actors/remote/learner_wire.h"
#include "actors/remote/setting.h"
#include "actors/remote/wire.h"
#include "actors/remote/work_wire.h"
#include "actors/trajectory_file.h"
#include "actors/weights/manifest.h"
#include "actors/weights/wire.h"
#include "algos/audit/make_problem.h"
#include "app/audit_problem.h"
#include "envs/tokenizer.h"
#include "tensor/config_json.h"
#include "tensor/model_file.h"
#include "tests/temporary_folder.h"

namespace motley::fuzz {
namespace {

/// One file of a tar archive (POSIX ustar): its header and its bytes, filled up to whole blocks.
std::string tar_entry(const std::string& path, const std::string& bytes) {
  std::string block(512, '\0');
  const auto put = [&](size_t at, const std::string& text) { block.replace(at, text.size(), text); };
  put(0, path);
  put(100, "0000644");
  put(124, fmt::format("{:011o}", bytes.size()));
  put(136, "00000000000");
  put(148, "        ");  // the checksum is made with blanks in its place
  put(156, "0");
  put(257, std::string("ustar\00000", 8));
  unsigned sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  put(148, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
  return block + bytes + std::string((512 - bytes.size() % 512) % 512, '\0');
}

algos::Trajectory sample() {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  algos::Trajectory t;
  t.task = "arithmetic";
  t.group = 7;
  t.sampler = "b200";
  t.tokens = {0, 2, 1, 3, 1, 6};
  t.loss_mask = {0, 0, 0, 0, 1, 1};
  t.records.tokens = {1, 6};
  t.records.log_q = {-0.25f, -1e-40f};
  t.records.versions = {3, 4};
  t.records.offsets = {0, 2, 3};
  t.records.ids = {0, 1, 6};
  t.records.id_log_q = {-1.5f, -0.25f, -0.0f};
  t.records.log_tail = {-kInfinity, -kInfinity};
  t.reward = 1.0;
  t.reward_parts = {{"correct", 1.0}};
  return t;
}

TransformerConfig tiny_config() {
  TransformerConfig config;
  config.vocabulary = 16;
  config.layers = 1;
  config.width = 32;
  config.heads = 2;
  config.kv_heads = 1;
  return config.resolved();
}

template <class Fill>
std::string packed(const Fill& fill) {
  msgpack::sbuffer buffer;
  msgpack::packer<msgpack::sbuffer> out(buffer);
  fill(out);
  return {buffer.data(), buffer.size()};
}

}  // namespace

Seeds address_seeds() { return {{"name", "trainer.example:7000"}, {"six", "[::1]:0"}, {"any", ":65532"}}; }

Seeds archive_seeds() {
  const std::string end(1024, '\0');
  return {{"two", tar_entry("a/b.txt", "text\n") + tar_entry("c", "") + end}};
}

Seeds audit_problem_seeds() {
  using namespace algos::audit;
  const ProblemFamily family({.vocabulary = 2, .length = 2, .seed = 1});
  return {{"small", app::problem_json(family.at(parse_mismatch("none"))).dump()}};
}

Seeds config_json_seeds() {
  return {{"tiny", config_to_json(tiny_config())},
          {"qwen3", R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 64,
            "num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
            "intermediate_size": 64, "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "rope_theta": 1000000,
            "hidden_act": "silu", "tie_word_embeddings": true})"}};
}

Seeds experiment_seeds() {
  return {{"small", R"(name = "x"
[run]
updates = 3
async = false
[model]
layers = 1
width = 16
heads = 2
kv_heads = 1
[[tasks]]
env = "arithmetic"
digits = 1
[algo]
correction = "sc+mis"
parameters.mis.low = 0.25
[[samplers]]
name = "a"
profile = "h100-fp8"
)"}};
}

Seeds external_answer_seeds() {
  return {{"hello", packed([](auto& out) {
             out.pack_map(5);
             out.pack("id"), out.pack(1);
             out.pack("motley"), out.pack(1);
             out.pack("name"), out.pack("sums");
             out.pack("symbols"), out.pack(std::vector<std::string>{"0", "1"});
             out.pack("reward_range"), out.pack(std::vector<double>{0.0, 1.0});
           })},
          {"reward", packed([](auto& out) {
             out.pack_map(4);
             out.pack("id"), out.pack(2);
             out.pack("reward"), out.pack(0.5);
             out.pack("parts"), out.pack(std::map<std::string, double>{{"right", 0.5}});
             out.pack("format_error"), out.pack(false);
           })}};
}

Seeds fleet_seeds() {
  return {{"small", R"(name = "f"
[run]
updates = 2
concurrency = 8
[learner]
prompts = 1
[episodes]
reply_tokens = 10
replies = [3, 5]
[[samplers]]
name = "a"
replicas = 2
tokens_per_second = 100.0
alone_tokens_per_second = 50.0
max_sequences = 4
price_per_hour = 1.0
)"}};
}

Seeds jsonl_seeds() {
  return {
      {"pairs", "{\"prompt\": \"1+1=\", \"answer\": \"2\"}\n\n{\"prompt\": \"a\", \"answer\": 3, \"more\": [1]}\n"}};
}

Seeds key_file_seeds() { return {}; }

Seeds patch_seeds() {
  return {{"change", "--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"},
          {"make", "--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1 @@\n+new\n\\ No newline at end of file\n"}};
}

Seeds safetensors_seeds() {
  const TemporaryFolder folder;
  TensorFile content;
  content.tensors.emplace("a", Tensor::zeros({2, 3}, DType::f32));
  content.tensors.emplace("b.weight", Tensor::zeros({1}, DType::f32));
  content.metadata = {{"format", "pt"}};
  write_tensors(folder / "x.safetensors", content);
  return {{"two", folder.read("x.safetensors")}};
}

Seeds session_frame_seeds() {
  using namespace actors;
  GenerateRequest request;
  request.id = 7;
  request.tokens = {1, 2, 99};
  request.max_new_tokens = 7;
  request.stop_tokens = {0};
  request.record = RecordKind::candidates;
  request.vocabulary = 98;
  DecodeReport report;
  report.counts = {1, 2, 3, 4, 5, 6, 7, 8};
  report.outputs = {{.id = 12, .records = sample().records, .finish = FinishReason::stop},
                    {.id = 13, .records = {}, .finish = FinishReason::failed, .error = "no room"}};
  EpisodeJob job{.call = EpisodeJob::Call::reply, .training = 3, .interaction = 7, .turns = 1};
  job.replies = {{"12", true}};
  job.prompt = {1, 2, 99};
  job.drawn = {5};
  EpisodeStep step;
  step.outcome.reward.value = 0.5;
  step.outcome.reward.parts = {{"correct", 1.0}, {"format", -0.0}};
  step.outcome.reward.turns = {0.5};
  step.outcome.end = "submitted";
  const auto body = [](FrameKind kind, const std::string& bytes) { return static_cast<char>(kind) + bytes; };
  return {{"frame", std::string(1, '\0') + make_frame(FrameKind::note, 3, text_body("hello"))},
          {"requests", body(FrameKind::decode, requests_body({request}))},
          {"report", body(FrameKind::report, report_body(report))},
          {"calibrated", body(FrameKind::calibrated, calibrated_body({300, 70000}))},
          {"live", body(FrameKind::live, live_body({3, 17}))},
          {"text", body(FrameKind::note, text_body("hello"))},
          {"ready", body(FrameKind::ready, ready_body({4, {{"arithmetic", 17}}}))},
          {"work", body(FrameKind::work, work_body(9, job))},
          {"worked", body(FrameKind::worked, worked_body(9, step))},
          {"state", body(FrameKind::state, state_body({.version = 3,
                                                       .numbers = {{"adam.steps", 3.0}},
                                                       .learner = {{"baseline", "0x1p-1"}},
                                                       .tensors = {{"weights/a", {2, 3}}}}))},
          {"trained", body(FrameKind::trained, trained_body({4, {{"loss", 0.5}}}))},
          {"batch", body(FrameKind::batch, batch_body({4, 1000}))},
          {"evaluate", body(FrameKind::evaluate, evaluate_body({4, 4}))},
          {"setting", body(FrameKind::setting, setting_body({.experiment = "name = \"x\"",
                                                             .model = tiny_config(),
                                                             .tokenizer = envs::Tokenizer({"1", "+"})}))}};
}

Seeds tokenizer_seeds() {
  return {{"symbols", envs::Tokenizer({"0", "1", "10", "+", "="}).to_json()},
          {"markers", envs::Tokenizer({"a", "\xc3\xa4"}, false, {"<|x|>"}).to_json()}};
}

Seeds tool_call_seeds() {
  return {
      {"command", "$ ls -l"},
      {"tagged", "think\n\1<tool_call>\1{\"name\": \"bash\", \"arguments\": {\"command\": \"ls\"}}\1</tool_call>\1"},
      {"object", "{\"name\": \"bash\", \"parameters\": {\"command\": \"ls\"}}"}};
}

Seeds trajectories_seeds() {
  const TemporaryFolder folder;
  algos::Trajectory failed;
  failed.task = "arithmetic";
  failed.failure = "no reply";
  actors::write_trajectories(folder / "t.msgpack", 3, {sample(), failed});
  return {{"two", folder.read("t.msgpack")}};
}

Seeds weight_manifest_seeds() {
  using namespace actors;
  WeightManifest manifest;
  manifest.kind = "h100-fp8";
  manifest.version = {3, 17};
  manifest.config = config_to_json(tiny_config());
  manifest.chunk_bytes = 100;
  manifest.parts = {{"a", WeightKind::plain, Shape{5, 10}, 200, 1}, {"b", WeightKind::plain, Shape{7}, 28, 2}};
  manifest.chunk_hashes = {5, 6, 7};
  return {{"two", encode(manifest)}};
}

Seeds weight_message_seeds() {
  using namespace actors;
  return {{"request", std::string(1, '\0') + encode(WeightRequest{WeightAsk::chunk, 7, "bf16", {5, 6}, 1, 2, 3})},
          {"answer", "\1" + encode(WeightAnswer{WeightReply::chunk, 7, 12, ChunkEncoding::zstd_xor, 9})},
          {"announcement", "\2" + encode(WeightAnnouncement{"bf16", {5, 6}})},
          {"topic", "\3" + weight_topic("bf16")}};
}

}  // namespace motley::fuzz
