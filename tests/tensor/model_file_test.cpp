#include "tensor/model_file.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstring>
#include <fstream>
#include <sstream>

#include "tests/temporary_folder.h"
#include "tests/tensor/tiny_model.h"

using namespace motley;
using namespace motley::test;
using Catch::Contains;
namespace fs = std::filesystem;

namespace {

std::string slurp(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

void spit(const fs::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

std::string framed(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + data;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  if (at == std::string::npos) throw std::runtime_error("nothing to replace: " + from);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("tensors come back as they were written, and the same bytes each time") {
  const motley::TemporaryFolder folder;
  TensorFile content;
  content.metadata = {{"format", "pt"}, {"note", "quotes \" and \n lines"}};
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    content.tensors.emplace(kernels::dtype_name(dtype), normals({3, 5}, 1, dtype));
  }
  content.tensors.emplace("special", constant({NAN, INFINITY, -0.0, 1e-45}, {2, 2}, DType::f32));
  content.tensors.emplace("empty", Tensor::empty({0, 7}, DType::f32));
  content.tensors.emplace("scalar", constant({2.0}, {}, DType::f64));
  write_tensors(folder / "a", content);
  const TensorFile read = read_tensors(folder / "a");
  CHECK(read.metadata == content.metadata);
  REQUIRE(read.tensors.size() == content.tensors.size());
  for (const auto& [name, tensor] : content.tensors) CHECK(fingerprint(read.tensors.at(name)) == fingerprint(tensor));
  write_tensors(folder / "b", read);
  CHECK(slurp(folder / "a") == slurp(folder / "b"));
  uint64_t header = 0;
  std::memcpy(&header, slurp(folder / "a").data(), 8);
  CHECK(header % 8 == 0);
  write_tensors(folder / "none", {});
  CHECK(read_tensors(folder / "none").tensors.empty());
}

TEST_CASE("broken safetensors files are refused with the path and the reason") {
  const motley::TemporaryFolder folder;
  const std::string good = R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  const std::string data(8, '\1');
  const std::string pair = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                           R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})";
  const auto with = [&](const std::string& from, const std::string& to) {
    return framed(replaced(good, from, to), data);
  };
  const std::string twice = good.substr(0, good.size() - 1) + "," + good.substr(1);
  std::string huge = framed(good, data);
  std::memset(huge.data(), 0x7f, 8);
  const std::pair<std::string, const char*> files[] = {
      {"", "too short"},
      {"1234567", "too short"},
      {std::string(8, '\0'), "broken header"},
      {huge, "header would have"},
      {framed(good, data).substr(0, 30), "cut short"},
      {framed(good, data.substr(1)), "outside the file"},
      {framed(good, data + "x"), "unused bytes at its end"},
      {framed("[]", ""), "no JSON object"},
      {framed("{", ""), "broken header"},
      {framed("{} x", ""), "broken header"},
      {framed("\xff\xfe{}", ""), "broken header"},
      {framed(std::string(100000, '['), ""), "broken header"},
      {framed(twice, data), "holds w twice"},
      {with("\"F32\"", "\"I64\""), "has type I64"},
      {with("\"F32\"", "3"), "has type 3"},
      {with("[2]", "[3]"), "where its shape needs 12"},
      {with("[2]", "[-2]"), "a dimension of w"},
      {with("[2]", "[2.0]"), "a dimension of w"},
      {with("[2]", "2"), "shape"},
      {with("[2]", "[4611686018427387904,4]"), "impossible shape"},
      {with("[2]", "[18446744073709551615]"), "impossible shape"},
      {with("[2]", "[9223372036854775808,0]"), "impossible shape"},
      {with("[2]", "[1,1,1,1,1,1,1,1,2]"), "shape"},
      {with("[0,8]", "[8,0]"), "outside the file"},
      {with("[0,8]", "[0,16]"), "outside the file"},
      {with("[0,8]", "[18446744073709551608,8]"), "outside the file"},
      {with("[0,8]", "[-8,0]"), "an offset of w"},
      {with("[0,8]", "[0]"), "no pair"},
      {with("[0,8]", "null"), "no pair"},
      {with("\"shape\"", "\"shapes\""), "lacks"},
      {framed(R"({"w":3})", ""), "lacks"},
      {framed(R"({"__metadata__":[],"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", data), "metadata"},
      {framed(R"({"__metadata__":{"n":1}})", ""), "metadata n"},
      {framed(replaced(pair, "[4,8]", "[0,4]"), data.substr(4)), "overlaps"},
      {framed(replaced(pair, "[0,4]", "[2,6]"), data + "12"), "unused bytes before"},
  };
  for (const auto& [bytes, reason] : files) {
    INFO(reason << ": " << bytes.substr(0, 100));
    spit(folder / "bad", bytes);
    CHECK_THROWS_AS(read_tensors(folder / "bad"), ModelFileError);
    CHECK_THROWS_WITH(read_tensors(folder / "bad"), Contains((folder / "bad").string()) && Contains(reason));
  }
  spit(folder / "good", framed(good, data));
  CHECK(read_tensors(folder / "good").tensors.at("w").shape() == Shape{2});
  spit(folder / "pair", framed(pair, data));
  CHECK(read_tensors(folder / "pair").tensors.size() == 2);
  CHECK_THROWS_AS(read_tensors(folder / "absent"), ModelFileError);
  CHECK_THROWS_AS(read_tensors(folder.path()), ModelFileError);
}

TEST_CASE("no cut and no flipped byte of a safetensors file does worse than an error") {
  const motley::TemporaryFolder folder;
  TensorFile content;
  content.tensors.emplace("a", normals({2, 3}, 1, DType::f32));
  content.tensors.emplace("b", normals({4}, 2, DType::bf16));
  write_tensors(folder / "whole", content);
  const std::string whole = slurp(folder / "whole");
  const auto attempt = [&](const std::string& bytes) {
    spit(folder / "changed", bytes);
    try {
      return read_tensors(folder / "changed").tensors.size();
    } catch (const ModelFileError&) {
      return size_t{0};
    }
  };
  for (size_t size = 0; size < whole.size(); ++size) CHECK(attempt(whole.substr(0, size)) == 0);
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const char mask : {'\x01', '\x10', '\x80'}) {
      std::string bytes = whole;
      bytes[at] = static_cast<char>(bytes[at] ^ mask);
      attempt(bytes);
    }
  }
}

TEST_CASE("a file write is whole or absent") {
  const motley::TemporaryFolder folder;
  const fs::path file = folder / "checkpoint";
  write_file_atomically(file, "first");
  CHECK(slurp(file) == "first");
  write_file_atomically(file, "");
  CHECK(slurp(file).empty());
  CHECK_THROWS_WITH(write_file_atomically(folder / "no" / "such", "x"), Contains("No such file"));
  fs::create_directory(folder / "taken");
  CHECK_THROWS_WITH(write_file_atomically(folder / "taken", "x"), Contains("taken"));
  REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK_THROWS_WITH(write_file_atomically(folder / "pipe", "x"), Contains("no regular file"));
  CHECK(std::filesystem::is_fifo(folder / "pipe"));
  size_t left = 0;
  for (const auto& entry : fs::directory_iterator(folder.path())) left += entry.is_regular_file();
  CHECK(left == 1);  // no temporary stays behind
}

// Scenario 41.
TEST_CASE("kill -9 in the middle of a write leaves the old content or the new") {
  const motley::TemporaryFolder folder;
  const fs::path file = folder / "checkpoint";
  const std::string contents[] = {std::string(300000, 'a'), std::string(500000, 'b')};
  write_file_atomically(file, contents[0]);
  const auto is_whole = [&] {
    const std::string now = slurp(file);
    return now == contents[0] || now == contents[1];
  };
  for (int round = 0; round < 5; ++round) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      for (int i = 1;; ++i) write_file_atomically(file, contents[i % 2]);
    }
    bool whole = true;
    for (int i = 0; i < 10 + round; ++i) whole = whole && is_whole();
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    CHECK(whole);
    CHECK(is_whole());
    write_file_atomically(file, contents[1]);  // what the killed writer left behind is in nobody's way
    CHECK(slurp(file) == contents[1]);
  }
}

TEST_CASE("a model comes back from its folder") {
  for (const Variant& variant : kVariants) {
    const motley::TemporaryFolder folder;
    TransformerConfig config = tiny_model(variant);
    config.rope_theta = 1e6;
    config.norm_eps = 1e-5;
    const Parameters parameters = Parameters::initialize(config, 1);
    save_model(folder / "model", config, parameters);
    const LoadedModel loaded = load_model(folder / "model");
    CHECK(loaded.config == config);
    CHECK(loaded.parameters.names() == parameters.names());
    CHECK(loaded.parameters.fingerprints() == parameters.fingerprints());
    const std::string text = slurp(folder.path() / "model" / "config.json");
    CHECK_THAT(text, Contains(variant.qk_norm ? "\"qwen3\"" : "\"llama\""));
  }
}

TEST_CASE("models in bf16 and configurations that leave out the defaults are read") {
  const motley::TemporaryFolder folder;
  TransformerConfig config = tiny_model();
  config.head_dim = 2;
  config.kv_heads = config.heads;
  config.tied_head = false;
  const Parameters parameters = Parameters::initialize(config, 1);
  TensorFile content;
  for (const std::string& name : parameters.names())
    content.tensors.emplace(name, cast(parameters.at(name), DType::bf16));
  write_tensors(folder / "model.safetensors", content);
  spit(folder / "config.json", R"({"model_type": "llama", "vocab_size": 11, "num_hidden_layers": 2, "hidden_size": 8,
    "num_attention_heads": 4, "intermediate_size": 12, "max_position_embeddings": 32, "rope_scaling": null,
    "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}})");
  const LoadedModel loaded = load_model(folder.path());
  config.rope_theta = 500000.0;
  CHECK(loaded.config == config);
  for (const std::string& name : parameters.names()) {
    CHECK(loaded.parameters.at(name).to_doubles() == content.tensors.at(name).to_doubles());
  }
}

TEST_CASE("models that cannot be used are refused with the reason") {
  const motley::TemporaryFolder folder;
  const TransformerConfig config = tiny_model();
  const Parameters parameters = Parameters::initialize(config, 1);
  save_model(folder.path(), config, parameters);
  const fs::path config_file = folder / "config.json", weights = folder / "model.safetensors";
  const std::string good = slurp(config_file);
  const auto refused = [&](const std::string& text, const char* reason) {
    spit(config_file, text);
    INFO(reason);
    CHECK_THROWS_AS(load_model(folder.path()), ModelFileError);
    CHECK_THROWS_WITH(load_model(folder.path()), Contains(folder.path().string()) && Contains(reason));
  };
  refused("{", "is broken");
  refused("[]", "no JSON object");
  refused(replaced(good, "\"llama\"", "\"gpt2\""), "model_type is \"gpt2\"");
  refused(replaced(good, "\"llama\"", "7"), "model_type must be text");
  refused(replaced(good, "\"vocab_size\"", "\"vocab\""), "vocab_size is missing");
  refused(replaced(good, "\"vocab_size\": 11", "\"vocab_size\": -11"), "vocab_size must be an integer");
  refused(replaced(good, "\"vocab_size\": 11", "\"vocab_size\": 11.5"), "vocab_size must be an integer");
  refused(replaced(good, "\"vocab_size\": 11", "\"vocab_size\": 12"), "model.embed_tokens.weight has shape [11, 8]");
  refused(replaced(good, "\"vocab_size\": 11", "\"vocab_size\": 2000000000"), "asks for [2000000000, 8]");
  refused(replaced(good, "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3"), "model.layers.2");
  refused(replaced(good, "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 2000000000"), "too few tensors");
  refused(replaced(good, "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1"), "is not part of the model");
  refused(replaced(good, "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3"), "kv_heads");
  refused(replaced(good, "\"silu\"", "\"gelu\""), "hidden_act");
  refused(replaced(good, "\"attention_bias\": false", "\"attention_bias\": true"), "attention_bias");
  refused(replaced(good, "\"hidden_act\"", "\"rope_scaling\": {\"factor\": 8}, \"hidden_act\""), "rope_scaling");
  refused(replaced(good, "\"hidden_act\"", "\"rope_parameters\": {\"rope_type\": \"yarn\"}, \"hidden_act\""), "yarn");
  refused(replaced(good, "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": 1"), "tie_word_embeddings");
  refused(replaced(good, "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false"),
          "lm_head.weight is missing");
  spit(config_file, good);
  CHECK_NOTHROW(load_model(folder.path()));
  fs::rename(weights, folder / "model.safetensors.index.json");
  CHECK_THROWS_WITH(load_model(folder.path()), Contains("several files"));
  fs::remove(folder / "model.safetensors.index.json");
  CHECK_THROWS_WITH(load_model(folder.path()), Contains("model.safetensors"));
  fs::remove(config_file);
  CHECK_THROWS_WITH(load_model(folder.path()), Contains("config.json"));
  CHECK_THROWS_WITH(load_model(folder / "absent"), Contains("absent"));
}
