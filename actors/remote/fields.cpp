#include "actors/remote/fields.h"

#include <cmath>

namespace motley::actors {
namespace {

constexpr size_t kMostEntries = 1 << 20;  // of one list
constexpr size_t kMostFields = 64;
constexpr size_t kMostDepth = 8;

}  // namespace

msgpack::object_handle unpack_body(std::string_view bytes) {
  const msgpack::unpack_limit limits(kMostEntries, kMostFields, kMostFrameBytes, kMostFrameBytes, 0, kMostDepth);
  const auto by_reference = [](msgpack::type::object_type, size_t, void*) { return true; };
  try {
    size_t offset = 0;
    msgpack::object_handle handle = msgpack::unpack(bytes.data(), bytes.size(), offset, by_reference, nullptr, limits);
    if (offset != bytes.size()) throw WireError("there are bytes after the msgpack");
    return handle;
  } catch (const msgpack::unpack_error& error) {
    throw WireError(std::string("the body is no msgpack that may be sent: ") + error.what());
  }
}

Fields::Fields(const msgpack::object& map) : map_(map) {
  if (map.type != msgpack::type::MAP) throw WireError("there is no map where one belongs");
}

void Fields::fail(std::string_view key, const std::string& what) {
  throw WireError("field \"" + std::string(key) + "\" " + what);
}

const msgpack::object* Fields::find(std::string_view key) const {
  for (uint32_t i = 0; i < map_.via.map.size; ++i) {
    const msgpack::object_kv& entry = map_.via.map.ptr[i];
    if (entry.key.type == msgpack::type::STR && std::string_view(entry.key.via.str.ptr, entry.key.via.str.size) == key)
      return &entry.val;
  }
  return nullptr;
}

const msgpack::object& Fields::need(std::string_view key) const {
  const msgpack::object* const value = find(key);
  if (!value) fail(key, "is missing");
  return *value;
}

uint64_t Fields::number(std::string_view key, uint64_t most) const {
  const msgpack::object& value = need(key);
  if (value.type != msgpack::type::POSITIVE_INTEGER) fail(key, "is no whole number of at least 0");
  if (value.via.u64 > most) fail(key, "is " + std::to_string(value.via.u64) + ", more than " + std::to_string(most));
  return value.via.u64;
}

double Fields::real(std::string_view key, double low, double high) const {
  const msgpack::object& value = need(key);
  double number = 0.0;
  switch (value.type) {
    case msgpack::type::FLOAT32:
    case msgpack::type::FLOAT64:
      number = value.via.f64;
      break;
    case msgpack::type::POSITIVE_INTEGER:
      number = static_cast<double>(value.via.u64);
      break;
    default:
      fail(key, "is no number");
  }
  if (!(number >= low && number <= high)) fail(key, "is out of range");
  return number;
}

std::string_view Fields::text(std::string_view key, size_t most_bytes) const {
  const msgpack::object& value = need(key);
  if (value.type != msgpack::type::STR) fail(key, "is no text");
  if (value.via.str.size > most_bytes) fail(key, "is longer than " + std::to_string(most_bytes) + " bytes");
  return {value.via.str.ptr, value.via.str.size};
}

std::vector<const msgpack::object*> Fields::list(std::string_view key, size_t most) const {
  const msgpack::object& value = need(key);
  if (value.type != msgpack::type::ARRAY) fail(key, "is no list");
  if (value.via.array.size > most) fail(key, "has more than " + std::to_string(most) + " entries");
  std::vector<const msgpack::object*> entries(value.via.array.size);
  for (uint32_t i = 0; i < entries.size(); ++i) entries[i] = &value.via.array.ptr[i];
  return entries;
}

}  // namespace motley::actors
