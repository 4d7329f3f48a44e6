#include "actors/external/wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "envs/utf8.h"

namespace motley::actors {
namespace {

using msgpack::type::object_type;

constexpr size_t kMostItems = 1 << 16, kMostKeys = 64, kMostDepth = 8;

std::string_view type_name(const msgpack::object& value) {
  switch (value.type) {
    case object_type::NIL:
      return "nil";
    case object_type::BOOLEAN:
      return "a boolean";
    case object_type::POSITIVE_INTEGER:
    case object_type::NEGATIVE_INTEGER:
      return "a whole number";
    case object_type::FLOAT32:
    case object_type::FLOAT64:
      return "a number";
    case object_type::STR:
      return "text";
    case object_type::BIN:
      return "bytes";
    case object_type::ARRAY:
      return "a list";
    case object_type::MAP:
      return "a map";
    case object_type::EXT:
      break;
  }
  return "an extension type";
}

std::optional<std::string_view> bytes_of(const msgpack::object& value) {
  if (value.type == object_type::STR) return std::string_view(value.via.str.ptr, value.via.str.size);
  if (value.type == object_type::BIN) return std::string_view(value.via.bin.ptr, value.via.bin.size);
  return std::nullopt;
}

std::string_view key_of(const msgpack::object_kv& member) { return {member.key.via.str.ptr, member.key.via.str.size}; }

msgpack::object_handle unpacked(std::string_view bytes) {
  const msgpack::unpack_limit limit(kMostItems, kMostKeys, kMostMessageBytes, kMostMessageBytes, 0, kMostDepth);
  size_t end = 0;
  try {
    msgpack::object_handle handle = msgpack::unpack(bytes.data(), bytes.size(), end, nullptr, nullptr, limit);
    if (end == bytes.size()) return handle;
  } catch (const msgpack::size_overflow&) {
    throw ExternalError(
        fmt::format("more than a message may hold: {} items of a list, {} keys, {} levels, no "
                    "extension types",
                    kMostItems, kMostKeys, kMostDepth));
  } catch (const std::exception&) {
    throw ExternalError("not msgpack, or cut short");
  }
  throw ExternalError(fmt::format("msgpack with {} bytes after its end", bytes.size() - end));
}

}  // namespace

bool is_word(std::string_view text) {
  constexpr size_t kMost = 32;
  return !text.empty() && text.size() <= kMost && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

ExternalRequest& ExternalRequest::number(std::string_view key, uint64_t value) {
  msgpack::packer out(packed_);
  out.pack(key).pack(value);
  ++fields_;
  return *this;
}

ExternalRequest& ExternalRequest::boolean(std::string_view key, bool value) {
  msgpack::packer out(packed_);
  out.pack(key).pack(value);
  ++fields_;
  return *this;
}

ExternalRequest& ExternalRequest::text(std::string_view key, std::string_view value) {
  msgpack::packer out(packed_);
  out.pack(key);
  const auto size = static_cast<uint32_t>(value.size());
  if (envs::is_utf8(value)) {
    out.pack_str(size).pack_str_body(value.data(), size);
  } else {
    out.pack_bin(size).pack_bin_body(value.data(), size);
  }
  ++fields_;
  return *this;
}

std::string ExternalRequest::packed(uint64_t id) const {
  constexpr uint32_t kCommon = 3;
  msgpack::sbuffer head;
  msgpack::packer out(head);
  out.pack_map(kCommon + fields_);
  out.pack("motley").pack(kExternalProtocol).pack("id").pack(id).pack("do").pack(what_);
  return std::string(head.data(), head.size()) + std::string(packed_.data(), packed_.size());
}

ExternalAnswer::ExternalAnswer(std::string_view bytes)
    : handle_(std::make_shared<msgpack::object_handle>(unpacked(bytes))) {
  const msgpack::object& map = handle_->get();
  if (map.type != object_type::MAP) throw ExternalError(fmt::format("{}, not a map", type_name(map)));
  std::set<std::string_view> keys;
  for (uint32_t i = 0; i < map.via.map.size; ++i) {
    const msgpack::object_kv& member = map.via.map.ptr[i];
    if (member.key.type != object_type::STR)
      throw ExternalError(fmt::format("a map with {} as a key", type_name(member.key)));
    if (!keys.insert(key_of(member)).second)
      throw ExternalError(fmt::format("a map with two keys \"{}\"", envs::printable(key_of(member), 40)));
  }
  const auto id = optional_number("id");
  if (!id) throw ExternalError("a map without the request's \"id\"");
  id_ = *id;
}

const msgpack::object* ExternalAnswer::find(std::string_view key) {
  asked_.emplace(key);
  const msgpack::object_map& map = handle_->get().via.map;
  for (uint32_t i = 0; i < map.size; ++i)
    if (key_of(map.ptr[i]) == key) return &map.ptr[i].val;
  return nullptr;
}

bool ExternalAnswer::has(std::string_view key) const {
  const msgpack::object_map& map = handle_->get().via.map;
  return std::any_of(map.ptr, map.ptr + map.size, [&](const auto& member) { return key_of(member) == key; });
}

const msgpack::object& ExternalAnswer::need(std::string_view key) {
  const msgpack::object* value = find(key);
  if (!value) refuse(fmt::format("\"{}\" is missing", key));
  return *value;
}

void ExternalAnswer::refuse(const std::string& reason) const { throw ExternalError(origin_ + reason); }

std::string ExternalAnswer::text(std::string_view key, size_t most_bytes) {
  const msgpack::object& value = need(key);
  const auto bytes = bytes_of(value);
  if (!bytes) refuse(fmt::format("\"{}\" is {}; it must be text", key, type_name(value)));
  if (bytes->size() > most_bytes)
    refuse(fmt::format("\"{}\" has {} bytes; at most {}", key, bytes->size(), most_bytes));
  return std::string(*bytes);
}

std::optional<std::string> ExternalAnswer::optional_text(std::string_view key, size_t most_bytes) {
  if (!has(key)) return std::nullopt;
  return text(key, most_bytes);
}

bool ExternalAnswer::boolean(std::string_view key, bool absent) {
  const msgpack::object* value = find(key);
  if (!value) return absent;
  if (value->type != object_type::BOOLEAN)
    refuse(fmt::format("\"{}\" is {}; it must be a boolean", key, type_name(*value)));
  return value->via.boolean;
}

std::optional<uint64_t> ExternalAnswer::optional_number(std::string_view key) {
  const msgpack::object* value = find(key);
  if (!value) return std::nullopt;
  if (value->type != object_type::POSITIVE_INTEGER)
    refuse(fmt::format("\"{}\" is {}; it must be a whole number from 0 on", key,
                       value->type == object_type::NEGATIVE_INTEGER ? "negative" : type_name(*value)));
  return value->via.u64;
}

double ExternalAnswer::finite(const msgpack::object& value, const std::string& name) const {
  double number = 0;
  switch (value.type) {
    case object_type::POSITIVE_INTEGER:
      number = static_cast<double>(value.via.u64);
      break;
    case object_type::NEGATIVE_INTEGER:
      number = static_cast<double>(value.via.i64);
      break;
    case object_type::FLOAT32:
    case object_type::FLOAT64:
      number = value.via.f64;
      break;
    default:
      refuse(fmt::format("{} is {}; it must be a number", name, type_name(value)));
  }
  if (!std::isfinite(number)) refuse(fmt::format("{} is {}; it must be finite", name, number));
  return number;
}

double ExternalAnswer::real(std::string_view key, double low, double high) {
  const double number = finite(need(key), fmt::format("\"{}\"", key));
  if (number < low || number > high)
    refuse(fmt::format("\"{}\" is {}; it must be from {} to {}", key, number, low, high));
  return number;
}

std::vector<std::string> ExternalAnswer::texts(std::string_view key) {
  std::vector<std::string> out;
  const msgpack::object* list = find(key);
  if (!list) return out;
  if (list->type != object_type::ARRAY)
    refuse(fmt::format("\"{}\" is {}; it must be a list of texts", key, type_name(*list)));
  for (uint32_t i = 0; i < list->via.array.size; ++i) {
    const auto bytes = bytes_of(list->via.array.ptr[i]);
    if (!bytes)
      refuse(fmt::format("\"{}\" holds {}; it must be a list of texts", key, type_name(list->via.array.ptr[i])));
    out.emplace_back(*bytes);
  }
  return out;
}

std::optional<std::pair<double, double>> ExternalAnswer::range(std::string_view key) {
  const msgpack::object* list = find(key);
  if (!list) return std::nullopt;
  if (list->type != object_type::ARRAY || list->via.array.size != 2)
    refuse(fmt::format("\"{}\" must be a list of two numbers", key));
  const std::string name = fmt::format("a bound of \"{}\"", key);
  const double low = finite(list->via.array.ptr[0], name), high = finite(list->via.array.ptr[1], name);
  if (low >= high) refuse(fmt::format("\"{}\" is [{}, {}]; the first must be below the second", key, low, high));
  return std::pair(low, high);
}

std::vector<std::pair<std::string, double>> ExternalAnswer::numbers(std::string_view key) {
  std::vector<std::pair<std::string, double>> out;
  const msgpack::object* map = find(key);
  if (!map) return out;
  if (map->type != object_type::MAP) refuse(fmt::format("\"{}\" is {}; it must be a map", key, type_name(*map)));
  for (uint32_t i = 0; i < map->via.map.size; ++i) {
    const auto name = bytes_of(map->via.map.ptr[i].key);
    if (!name || !is_word(*name))
      refuse(fmt::format("\"{}\" has a name that is no word of a-z, 0-9 and _, at most 32", key));
    out.emplace_back(*name, finite(map->via.map.ptr[i].val, fmt::format("\"{}\" of \"{}\"", *name, key)));
  }
  return out;
}

void ExternalAnswer::done() const {
  const msgpack::object_map& map = handle_->get().via.map;
  for (uint32_t i = 0; i < map.size; ++i) {
    if (asked_.contains(key_of(map.ptr[i]))) continue;
    std::string known;
    for (const std::string& key : asked_) known += (known.empty() ? "" : ", ") + key;
    refuse(fmt::format("unknown key \"{}\"; allowed here: {}", envs::printable(key_of(map.ptr[i]), 40), known));
  }
}

}  // namespace motley::actors
