// The messages by which weights travel: msgpack arrays of fixed length over ZeroMQ. What comes from a peer is
// untrusted: lengths, types and ranges are checked before anything is used or allocated by them.
//
//   client -> server  [protocol, what, attempt, kind, version, digest, base, chunk, milliseconds]
//   server -> client  [protocol, what, attempt, chunk, encoding, hash] and a frame of bytes
//   announcement      kind and a newline (the topic), then [protocol, kind, version, digest]
#pragma once

#include <cstdint>
#include <msgpack.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace motley::actors {

/// What a peer sent is not what it must be; the message says what.
class WeightWireError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline constexpr uint64_t kWeightProtocol = 1;
inline constexpr size_t kMostKindBytes = 256;
inline constexpr size_t kMostRequestBytes = 1024;
/// Chunks that a client may ask for ahead. ZeroMQ counts what a peer has read in steps of half its high-water mark, so
/// that a server which keeps four times as many for each peer drops none.
inline constexpr int kMostWindow = 64;

/// A version of one kind. After a restart of its learner a run may give a number again to other weights, which the
/// digest tells apart.
struct WeightVersion {
  uint64_t number = 0;
  uint64_t digest = 0;  // over the fingerprints of all tensors (tensor/weight_parts.h)
  bool operator==(const WeightVersion&) const = default;
};

enum class WeightAsk : uint8_t {
  newest,  // the manifest of the newest version
  chunk,   // bytes of a version
  done,    // no answer: the version is complete; how long it took
};
struct WeightRequest {
  WeightAsk ask = WeightAsk::newest;
  uint64_t attempt = 0;  // comes back with the answer
  std::string kind;
  WeightVersion version;
  uint64_t base = 0;   // the digest of a version that the client holds; 0: none
  uint64_t chunk = 0;  // its number
  uint64_t milliseconds = 0;
  bool operator==(const WeightRequest&) const = default;
};

enum class WeightReply : uint8_t {
  manifest,  // the bytes are a manifest's
  chunk,
  unknown,  // no version of that kind so far
  gone,     // that version is no longer there
};
enum class ChunkEncoding : uint8_t {
  raw,
  zstd,
  zstd_xor,  // zstd of the XOR with the same bytes of the base
};
struct WeightAnswer {
  WeightReply reply = WeightReply::unknown;
  uint64_t attempt = 0;
  uint64_t chunk = 0;
  ChunkEncoding encoding = ChunkEncoding::raw;
  uint64_t hash = 0;  // XXH3-64 of a manifest's bytes; a chunk's is in the manifest
  bool operator==(const WeightAnswer&) const = default;
};

struct WeightAnnouncement {
  std::string kind;
  WeightVersion version;
  bool operator==(const WeightAnnouncement&) const = default;
};

std::string encode(const WeightRequest& request);
std::string encode(const WeightAnswer& answer);
std::string encode(const WeightAnnouncement& announcement);
/// Throw WeightWireError.
WeightRequest decode_request(std::string_view bytes);
WeightAnswer decode_answer(std::string_view bytes);
WeightAnnouncement decode_announcement(std::string_view bytes);

/// A kind's topic. It ends in what no kind holds, so that no topic begins with another.
std::string weight_topic(std::string_view kind);
/// The kind of a topic; throws WeightWireError.
std::string kind_of_topic(std::string_view topic);
/// Throws std::invalid_argument: 1 to 256 bytes, none of them a newline.
void check_kind(std::string_view kind);

uint64_t hash_of(std::span<const std::byte> bytes);
uint64_t hash_of(std::string_view bytes);

/// The elements of one msgpack array, in order; each call throws WeightWireError for what is not there, of another type
/// or out of range.
class WireArray {
 public:
  /// `what` begins every message. At most `most_items` in any array and `most_bytes` in any text or binary.
  WireArray(std::string what, std::string_view bytes, size_t most_items, size_t most_bytes);
  /// The array that is the next element.
  WireArray array();
  size_t size() const { return size_; }
  uint64_t number(const char* name, uint64_t most = UINT64_MAX);
  std::string text(const char* name, size_t most);
  std::string_view binary(const char* name);  // lives as long as the outermost array
  /// Unless every element was asked for.
  void done() const;
  [[noreturn]] void refuse(const std::string& reason) const;

 private:
  WireArray(std::string what, std::shared_ptr<msgpack::object_handle> handle, const msgpack::object& array);
  const msgpack::object& next(const char* name);

  std::string what_;
  std::shared_ptr<msgpack::object_handle> handle_;
  const msgpack::object* items_ = nullptr;
  size_t size_ = 0, at_ = 0;
};

}  // namespace motley::actors
