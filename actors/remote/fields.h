// Reading a msgpack map with text keys that came from the network.
#pragma once

#include <cstring>
#include <msgpack.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "actors/remote/wire.h"

namespace motley::actors {

/// One msgpack object, which owns nothing of `bytes`. Throws WireError for anything else, or more than it may hold.
msgpack::object_handle unpack_body(std::string_view bytes);

/// The fields of a map; every getter throws WireError that names the field.
class Fields {
 public:
  explicit Fields(const msgpack::object& map);
  uint64_t number(std::string_view key, uint64_t most = ~uint64_t{0}) const;
  /// Finite, in [low, high].
  double real(std::string_view key, double low, double high) const;
  std::string_view text(std::string_view key, size_t most_bytes) const;
  bool has(std::string_view key) const { return find(key) != nullptr; }
  std::vector<const msgpack::object*> list(std::string_view key, size_t most) const;
  /// A bin of little-endian numbers.
  template <class T>
  std::vector<T> array(std::string_view key) const {
    const msgpack::object& value = need(key);
    if (value.type != msgpack::type::BIN || value.via.bin.size % sizeof(T) != 0)
      fail(key, "is no bin of whole numbers");
    std::vector<T> numbers(value.via.bin.size / sizeof(T));
    if (!numbers.empty()) std::memcpy(numbers.data(), value.via.bin.ptr, value.via.bin.size);
    return numbers;
  }
  [[noreturn]] static void fail(std::string_view key, const std::string& what);

 private:
  const msgpack::object* find(std::string_view key) const;
  const msgpack::object& need(std::string_view key) const;
  const msgpack::object& map_;
};

/// A map in the making.
class MapWriter {
 public:
  explicit MapWriter(msgpack::sbuffer& out, uint32_t fields) : packer_(out) { packer_.pack_map(fields); }
  template <class T>
  MapWriter& field(std::string_view key, const T& value) {
    text(key);
    packer_.pack(value);
    return *this;
  }
  MapWriter& field(std::string_view key, std::string_view value) {
    text(key);
    text(value);
    return *this;
  }
  template <class T>
  MapWriter& array(std::string_view key, const std::vector<T>& numbers) {
    text(key);
    const auto bytes = static_cast<uint32_t>(numbers.size() * sizeof(T));
    packer_.pack_bin(bytes);
    packer_.pack_bin_body(reinterpret_cast<const char*>(numbers.data()), bytes);
    return *this;
  }
  /// A list of so many maps follows.
  MapWriter& list(std::string_view key, size_t count) {
    text(key);
    packer_.pack_array(static_cast<uint32_t>(count));
    return *this;
  }

 private:
  void text(std::string_view value) {
    packer_.pack_str(static_cast<uint32_t>(value.size()));
    packer_.pack_str_body(value.data(), static_cast<uint32_t>(value.size()));
  }
  msgpack::packer<msgpack::sbuffer> packer_;
};

}  // namespace motley::actors
