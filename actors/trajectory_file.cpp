#include "actors/trajectory_file.h"

#include <bit>
#include <msgpack.hpp>

#include "tensor/model_file.h"

namespace motley::actors {
namespace {

namespace fs = std::filesystem;
// 1 has a count of turns, which was always 1, in the place of their list; 1 and 2 have neither an interaction's ending
// nor its count of format errors.
constexpr uint32_t kVersion = 3;

/// A whole array as its bytes, little endian: exact for floats, and far smaller than one msgpack number each.
template <class T>
void pack_array(msgpack::packer<msgpack::sbuffer>& out, const std::vector<T>& values) {
  const auto bytes = static_cast<uint32_t>(values.size() * sizeof(T));
  out.pack_bin(bytes);
  out.pack_bin_body(reinterpret_cast<const char*>(values.data()), bytes);
}

template <class T>
std::vector<T> unpack_array(const msgpack::object& object) {
  if (object.type != msgpack::type::BIN || object.via.bin.size % sizeof(T) != 0)
    throw std::runtime_error("an array has the wrong type or length");
  std::vector<T> values(object.via.bin.size / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), object.via.bin.ptr, object.via.bin.size);
  return values;
}

uint64_t bits(double value) { return std::bit_cast<uint64_t>(value); }

constexpr uint32_t kFields = 22, kFieldsBefore3 = 20;

void pack_trajectory(msgpack::packer<msgpack::sbuffer>& out, const algos::Trajectory& t) {
  out.pack_array(kFields);
  out.pack(t.task).pack(t.group).pack(t.prompt).pack(t.sample).pack(t.attempt).pack(t.sampler);
  pack_array(out, t.tokens);
  pack_array(out, t.loss_mask);
  out.pack(bits(t.temperature)).pack(bits(t.reward));
  out.pack_map(static_cast<uint32_t>(t.reward_parts.size()));
  for (const auto& [name, value] : t.reward_parts) out.pack(name).pack(bits(value));
  out.pack_array(static_cast<uint32_t>(t.turns.size()));
  for (const algos::Turn& turn : t.turns) out.pack_array(2).pack(turn.tokens).pack(bits(turn.reward));
  out.pack(t.format_error).pack(t.truncated).pack(t.failure).pack(t.batch_version);
  const TokenRecords& r = t.records;
  pack_array(out, r.tokens);
  pack_array(out, r.log_q);
  pack_array(out, r.versions);
  out.pack_array(4);
  pack_array(out, r.offsets);
  pack_array(out, r.ids);
  pack_array(out, r.id_log_q);
  pack_array(out, r.log_tail);
  out.pack(t.ending).pack(t.format_errors);
}

std::vector<const msgpack::object*> elements(const msgpack::object& object) {
  if (object.type != msgpack::type::ARRAY) throw std::runtime_error("no list where one belongs");
  std::vector<const msgpack::object*> out(object.via.array.size);
  for (uint32_t i = 0; i < out.size(); ++i) out[i] = &object.via.array.ptr[i];
  return out;
}
std::vector<const msgpack::object*> elements(const msgpack::object& object, uint32_t count) {
  std::vector<const msgpack::object*> out = elements(object);
  if (out.size() != count) throw std::runtime_error("a record has the wrong number of fields");
  return out;
}

algos::Trajectory unpack_trajectory(const msgpack::object& object, uint32_t version, int64_t vocabulary) {
  const auto field = elements(object, version < 3 ? kFieldsBefore3 : kFields);
  algos::Trajectory t;
  size_t i = 0;
  t.task = field[i++]->as<std::string>();
  t.group = field[i++]->as<uint64_t>();
  t.prompt = field[i++]->as<uint64_t>();
  t.sample = field[i++]->as<uint32_t>();
  t.attempt = field[i++]->as<uint32_t>();
  t.sampler = field[i++]->as<std::string>();
  t.tokens = unpack_array<int32_t>(*field[i++]);
  t.loss_mask = unpack_array<uint8_t>(*field[i++]);
  t.temperature = std::bit_cast<double>(field[i++]->as<uint64_t>());
  t.reward = std::bit_cast<double>(field[i++]->as<uint64_t>());
  for (const auto& [name, value] : field[i++]->as<std::map<std::string, uint64_t>>())
    t.reward_parts[name] = std::bit_cast<double>(value);
  if (const msgpack::object& turns = *field[i++]; version > 1)
    for (const msgpack::object* turn : elements(turns))
      t.turns.push_back(
          {elements(*turn, 2)[0]->as<uint32_t>(), std::bit_cast<double>(elements(*turn, 2)[1]->as<uint64_t>())});
  t.format_error = field[i++]->as<bool>();
  t.truncated = field[i++]->as<bool>();
  t.failure = field[i++]->as<std::string>();
  t.batch_version = field[i++]->as<uint64_t>();
  t.records.tokens = unpack_array<int32_t>(*field[i++]);
  t.records.log_q = unpack_array<float>(*field[i++]);
  t.records.versions = unpack_array<uint64_t>(*field[i++]);
  const auto lists = elements(*field[i++], 4);
  t.records.offsets = unpack_array<int64_t>(*lists[0]);
  t.records.ids = unpack_array<int32_t>(*lists[1]);
  t.records.id_log_q = unpack_array<float>(*lists[2]);
  t.records.log_tail = unpack_array<float>(*lists[3]);
  if (version > 2) {
    t.ending = field[i++]->as<std::string>();
    t.format_errors = field[i++]->as<int64_t>();
  }
  if (const std::string wrong = t.inconsistency(vocabulary); t.failure.empty() && !wrong.empty())
    throw std::runtime_error("a trajectory does not fit together: " + wrong);
  return t;
}

}  // namespace

fs::path trajectory_path(const fs::path& run_folder, int64_t update) {
  char name[40];
  std::snprintf(name, sizeof name, "update-%06lld.msgpack", static_cast<long long>(update));
  return run_folder / "trajectories" / name;
}

std::string trajectories_to_bytes(int64_t update, const std::vector<algos::Trajectory>& trajectories) {
  msgpack::sbuffer buffer;
  msgpack::packer<msgpack::sbuffer> out(buffer);
  out.pack_map(4);
  out.pack("format").pack("motley-trajectories");
  out.pack("version").pack(kVersion);
  out.pack("update").pack(update);
  out.pack("trajectories").pack_array(static_cast<uint32_t>(trajectories.size()));
  for (const algos::Trajectory& t : trajectories) pack_trajectory(out, t);
  return {buffer.data(), buffer.size()};
}

std::vector<algos::Trajectory> trajectories_from_bytes(std::string_view bytes, int64_t vocabulary) {
  // Every element takes a byte at least: a list that claims more than there is would be made room for first.
  constexpr size_t kDepth = 16;
  const size_t most = bytes.size();
  const msgpack::unpack_limit limit(most, most, most, most, most, kDepth);
  const msgpack::object_handle handle = msgpack::unpack(bytes.data(), most, nullptr, nullptr, limit);
  const auto map = handle.get().as<std::map<std::string, msgpack::object>>();
  if (map.at("format").as<std::string>() != "motley-trajectories") throw std::runtime_error("not a trajectory file");
  const auto version = map.at("version").as<uint32_t>();
  if (version < 1 || version > kVersion)
    throw std::runtime_error("format version " + std::to_string(version) + ", not 1 to " + std::to_string(kVersion));
  std::vector<algos::Trajectory> out;
  for (const msgpack::object* one : elements(map.at("trajectories")))
    out.push_back(unpack_trajectory(*one, version, vocabulary));
  return out;
}

void write_trajectories(const fs::path& file, int64_t update, const std::vector<algos::Trajectory>& trajectories) {
  fs::create_directories(file.parent_path());
  write_file_atomically(file, trajectories_to_bytes(update, trajectories));
}

std::vector<algos::Trajectory> read_trajectories(const fs::path& file, int64_t vocabulary) {
  const std::string bytes = read_file(file);
  try {
    return trajectories_from_bytes(bytes, vocabulary);
  } catch (const std::exception& error) {
    throw std::runtime_error(file.string() + ": " + error.what());
  }
}

void prune_trajectories(const fs::path& run_folder, int64_t newest_update, int64_t keep) {
  // One file a step falls out of the window, but a resume may have left a gap: walk down until none is there.
  for (int64_t update = newest_update - keep; update > 0; --update)
    if (!fs::remove(trajectory_path(run_folder, update))) break;
}

}  // namespace motley::actors
