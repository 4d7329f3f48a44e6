// Messages to and from an external environment: msgpack maps with text keys. What a server sends is untrusted: sizes,
// nesting, types and keys are checked, and what is wrong is said with the place.
#pragma once

#include <cstdint>
#include <msgpack.hpp>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace motley::actors {

/// An external environment, or the way to it, failed: the message says which, and how.
class ExternalError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline constexpr int64_t kExternalProtocol = 1;
inline constexpr size_t kMostMessageBytes = 1 << 20;

/// A request without its id: what is asked, and its fields.
class ExternalRequest {
 public:
  explicit ExternalRequest(std::string what) : what_(std::move(what)) {}
  ExternalRequest& number(std::string_view key, uint64_t value);
  ExternalRequest& boolean(std::string_view key, bool value);
  /// As str where it is UTF-8, else as bin.
  ExternalRequest& text(std::string_view key, std::string_view value);

  const std::string& what() const { return what_; }
  /// The whole message.
  std::string packed(uint64_t id) const;

 private:
  std::string what_;
  uint32_t fields_ = 0;
  msgpack::sbuffer packed_;
};

/// The fields of an answer. Every getter throws ExternalError for a wrong type or size; `done` for keys that nobody
/// asked for.
class ExternalAnswer {
 public:
  /// Throws ExternalError: no msgpack, more than a message may hold, no map with text keys, a key twice, no id.
  explicit ExternalAnswer(std::string_view bytes);
  uint64_t id() const { return id_; }
  /// From here on messages begin with this.
  void set_origin(std::string origin) { origin_ = std::move(origin); }

  bool has(std::string_view key) const;
  std::string text(std::string_view key, size_t most_bytes);
  std::optional<std::string> optional_text(std::string_view key, size_t most_bytes);
  bool boolean(std::string_view key, bool absent);
  std::optional<uint64_t> optional_number(std::string_view key);
  /// Finite, in [low, high].
  double real(std::string_view key, double low, double high);
  std::vector<std::string> texts(std::string_view key);
  /// Two numbers, low < high, both finite; nothing without the key.
  std::optional<std::pair<double, double>> range(std::string_view key);
  /// Finite numbers by name.
  std::vector<std::pair<std::string, double>> numbers(std::string_view key);
  void done() const;
  [[noreturn]] void refuse(const std::string& reason) const;

 private:
  const msgpack::object* find(std::string_view key);
  const msgpack::object& need(std::string_view key);
  double finite(const msgpack::object& value, const std::string& name) const;

  std::shared_ptr<msgpack::object_handle> handle_;
  std::string origin_;
  uint64_t id_ = 0;
  std::set<std::string, std::less<>> asked_{"id"};
};

/// Letters a-z, digits and _, at most 32: what names a part of a reward or an episode's end, for a metric's name.
bool is_word(std::string_view text);

}  // namespace motley::actors
