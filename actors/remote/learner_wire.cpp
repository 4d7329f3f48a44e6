#include "actors/remote/learner_wire.h"

#include <algorithm>
#include <bit>

#include "actors/remote/fields.h"

namespace motley::actors {
namespace {

constexpr uint64_t kMostUpdates = 1'000'000'000;                    // as many as run.updates allows
constexpr uint64_t kMostBatchBytes = uint64_t{1} << 36;             // 64 GiB
constexpr size_t kMostMetrics = 1 << 14, kMostEntryName = 256;      // of a metric or a tensor, in bytes
constexpr size_t kMostEntriesOfState = 64, kMostStateText = 65536;  // numbers or texts, and bytes of one
constexpr size_t kMostTensors = 1 << 20, kMostRank = 8;

std::string packed_bytes(const msgpack::sbuffer& buffer) { return {buffer.data(), buffer.size()}; }

/// Every double as its bits: it comes back the same, NaN and infinities included.
void pack_numbers(MapWriter& map, msgpack::sbuffer& out, std::string_view key,
                  const std::map<std::string, double>& numbers) {
  map.list(key, numbers.size());
  for (const auto& [name, value] : numbers)
    MapWriter(out, 2).field("name", name).field("bits", std::bit_cast<uint64_t>(value));
}

std::map<std::string, double> parse_numbers(const Fields& fields, std::string_view key, size_t most) {
  std::map<std::string, double> numbers;
  for (const msgpack::object* object : fields.list(key, most)) {
    const Fields entry(*object);
    const std::string_view name = entry.text("name", kMostEntryName);
    if (name.empty() || !std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c <= '~'; }))
      Fields::fail(key, "has a name that is none");
    if (!numbers.emplace(name, std::bit_cast<double>(entry.number("bits"))).second)
      Fields::fail(key, "has " + std::string(name) + " twice");
  }
  return numbers;
}

void write_tensor(PeerLine& line, const Tensor& tensor) {
  line.write(
      {reinterpret_cast<const char*>(tensor.data<float>()), static_cast<size_t>(tensor.numel()) * sizeof(float)});
}

Tensor read_tensor(PeerLine& line, const Shape& shape) {
  Tensor tensor = Tensor::empty(shape, DType::f32);
  line.read(reinterpret_cast<char*>(tensor.data<float>()), static_cast<size_t>(tensor.numel()) * sizeof(float));
  return tensor;
}

constexpr std::string_view kWeights = "weights/", kFirst = "adam.first/", kSecond = "adam.second/",
                           kReference = "reference/";

/// Of "history.<age>/...": the age; 0: it is none.
size_t history_age(std::string_view prefix) {
  constexpr std::string_view kHistory = "history.";
  if (!prefix.starts_with(kHistory) || !prefix.ends_with('/')) return 0;
  const std::string_view digits = prefix.substr(kHistory.size(), prefix.size() - kHistory.size() - 1);
  if (digits.empty() || digits.size() > 6 || digits[0] == '0' ||
      !std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; }))
    return 0;
  return std::stoul(std::string(digits));
}

}  // namespace

std::string state_body(const StateHead& head) {
  msgpack::sbuffer out;
  MapWriter map(out, 4);
  map.field("version", head.version);
  pack_numbers(map, out, "numbers", head.numbers);
  map.list("learner", head.learner.size());
  for (const auto& [name, text] : head.learner) MapWriter(out, 2).field("name", name).field("text", text);
  map.list("tensors", head.tensors.size());
  for (const TensorHead& tensor : head.tensors)
    MapWriter(out, 2).field("name", tensor.name).array("shape", tensor.shape);
  return packed_bytes(out);
}

std::string batch_body(const BatchHead& head) {
  msgpack::sbuffer out;
  MapWriter(out, 2).field("update", head.update).field("bytes", head.bytes);
  return packed_bytes(out);
}

std::string trained_body(const TrainedHead& head) {
  msgpack::sbuffer out;
  MapWriter map(out, 2);
  map.field("update", head.update);
  pack_numbers(map, out, "metrics", head.metrics);
  return packed_bytes(out);
}

std::string version_body(uint64_t version) {
  msgpack::sbuffer out;
  MapWriter(out, 1).field("version", version);
  return packed_bytes(out);
}

StateHead parse_state(std::string_view body) {
  const msgpack::object_handle handle = unpack_body(body);
  const Fields fields(handle.get());
  StateHead head;
  head.version = fields.number("version", kMostUpdates);
  head.numbers = parse_numbers(fields, "numbers", kMostEntriesOfState);
  for (const msgpack::object* object : fields.list("learner", kMostEntriesOfState)) {
    const Fields entry(*object);
    head.learner[std::string(entry.text("name", kMostEntryName))] = entry.text("text", kMostStateText);
  }
  for (const msgpack::object* object : fields.list("tensors", kMostTensors)) {
    const Fields entry(*object);
    head.tensors.push_back({std::string(entry.text("name", kMostEntryName)), entry.array<int64_t>("shape")});
    if (head.tensors.back().shape.size() > kMostRank) Fields::fail("shape", "has too many dimensions");
  }
  return head;
}

BatchHead parse_batch(std::string_view body) {
  const msgpack::object_handle handle = unpack_body(body);
  const Fields fields(handle.get());
  return {.update = fields.number("update", kMostUpdates), .bytes = fields.number("bytes", kMostBatchBytes)};
}

TrainedHead parse_trained(std::string_view body) {
  const msgpack::object_handle handle = unpack_body(body);
  const Fields fields(handle.get());
  return {.update = fields.number("update", kMostUpdates), .metrics = parse_numbers(fields, "metrics", kMostMetrics)};
}

uint64_t parse_version(std::string_view body) {
  const msgpack::object_handle handle = unpack_body(body);
  return Fields(handle.get()).number("version", kMostUpdates);
}

void check_tensors(const StateHead& head, const TransformerConfig& model, size_t history) {
  std::map<std::string, Shape> shapes;
  for (auto& [name, shape] : Parameters::layout(model)) shapes.emplace(name, std::move(shape));
  std::map<std::string, size_t> of_prefix;
  std::map<std::string, bool> seen;
  for (const TensorHead& tensor : head.tensors) {
    const size_t slash = tensor.name.find('/');
    const std::string prefix = tensor.name.substr(0, slash == std::string::npos ? 0 : slash + 1);
    const auto found = shapes.find(tensor.name.substr(prefix.size()));
    const size_t age = history_age(prefix);
    const bool known = prefix == kWeights || prefix == kFirst || prefix == kSecond || prefix == kReference ||
                       (age > 0 && age <= history);
    if (!known || found == shapes.end()) throw WireError("a tensor that the run's model does not have: " + tensor.name);
    if (found->second != tensor.shape) throw WireError("another shape than in the run's model: " + tensor.name);
    if (!seen.emplace(tensor.name, true).second) throw WireError("a tensor that comes twice: " + tensor.name);
    ++of_prefix[prefix];
  }
  for (const std::string_view needed : {kWeights, kFirst, kSecond}) of_prefix[std::string(needed)];
  for (const auto& [prefix, count] : of_prefix)
    if (count != shapes.size())
      throw WireError(std::to_string(count) + " tensors " + prefix + "..., and the run's model has " +
                      std::to_string(shapes.size()));
}

void write_weights(PeerLine& line, const Parameters& weights) {
  for (const std::string& name : weights.names()) write_tensor(line, weights.at(name));
  line.flush();
}

std::shared_ptr<const Parameters> read_weights(PeerLine& line, const TransformerConfig& model) {
  auto weights = std::make_shared<Parameters>(Parameters::zeros(model));
  for (const std::string& name : weights->names()) weights->at(name) = read_tensor(line, weights->at(name).shape());
  line.end_parts();
  return weights;
}

void send_state(PeerLine& line, FrameKind kind, const TrainingState& state) {
  std::vector<std::pair<std::string, Tensor>> tensors;
  const auto add = [&](std::string_view prefix, const Parameters& parameters) {
    for (const std::string& name : parameters.names())
      tensors.emplace_back(std::string(prefix) + name, parameters.at(name));
  };
  add(kWeights, *state.state.weights);
  for (const auto& [name, tensor] : state.state.optimizer.tensors) tensors.emplace_back(name, tensor);
  if (state.reference) add(kReference, *state.reference);
  StateHead head{state.version, state.state.optimizer.numbers, state.state.learner, {}};
  for (const auto& [name, tensor] : tensors) head.tensors.push_back({name, tensor.shape()});
  line.send(kind, state_body(head));
  for (const auto& [name, tensor] : tensors) write_tensor(line, tensor);
  line.flush();
}

TrainingState read_state(PeerLine& line, std::string_view body, const TransformerConfig& model, size_t history) {
  StateHead head = parse_state(body);
  check_tensors(head, model, history);
  TrainingState state{head.version, {{{}, std::move(head.numbers)}, std::move(head.learner), nullptr}, nullptr};
  auto weights = std::make_shared<Parameters>(Parameters::zeros(model));
  std::shared_ptr<Parameters> reference;
  for (const TensorHead& tensor : head.tensors) {
    Tensor values = read_tensor(line, tensor.shape);
    if (tensor.name.starts_with(kWeights)) {
      weights->at(tensor.name.substr(kWeights.size())) = std::move(values);
    } else if (tensor.name.starts_with(kReference)) {
      if (!reference) reference = std::make_shared<Parameters>(Parameters::zeros(model));
      reference->at(tensor.name.substr(kReference.size())) = std::move(values);
    } else {
      state.state.optimizer.tensors.emplace(tensor.name, std::move(values));
    }
  }
  line.end_parts();
  state.state.weights = std::move(weights);
  state.reference = std::move(reference);
  return state;
}

void send_trained(PeerLine& line, uint64_t update, const Trainer::Trained& trained) {
  line.send(FrameKind::trained, trained_body({update, trained.metrics}));
  write_weights(line, *trained.weights);
}

Trainer::Trained read_trained(PeerLine& line, std::string_view body, const TransformerConfig& model, uint64_t update) {
  TrainedHead head = parse_trained(body);
  if (head.update != update)
    throw WireError("update " + std::to_string(head.update) + " where update " + std::to_string(update) +
                    " was asked for");
  return {std::move(head.metrics), read_weights(line, model)};
}

}  // namespace motley::actors
