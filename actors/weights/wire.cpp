#include "actors/weights/wire.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <utility>

namespace motley::actors {
namespace {

using msgpack::type::object_type;

constexpr size_t kMostFields = 16;
constexpr uint32_t kRequestFields = 9, kAnswerFields = 6, kAnnouncementFields = 4;

std::string taken(const msgpack::sbuffer& buffer) { return {buffer.data(), buffer.size()}; }

msgpack::object_handle unpacked(const std::string& what, std::string_view bytes, size_t most_items, size_t most_bytes) {
  constexpr size_t kMostDepth = 4;
  const msgpack::unpack_limit limit(most_items, 0, most_bytes, most_bytes, 0, kMostDepth);
  size_t end = 0;
  try {
    msgpack::object_handle handle = msgpack::unpack(bytes.data(), bytes.size(), end, nullptr, nullptr, limit);
    if (end == bytes.size()) return handle;
  } catch (const msgpack::size_overflow&) {
    throw WeightWireError(what + ": longer than it may be");
  } catch (const std::exception&) {
    throw WeightWireError(what + ": not msgpack, or cut short");
  }
  throw WeightWireError(fmt::format("{}: {} bytes after its end", what, bytes.size() - end));
}

/// An array of so many fields that begins with the protocol's version.
WireArray message(const char* what, std::string_view bytes, size_t fields) {
  WireArray array(what, bytes, kMostFields, kMostKindBytes);
  const uint64_t protocol = array.number("protocol");
  if (protocol != kWeightProtocol) array.refuse(fmt::format("protocol {}; this is {}", protocol, kWeightProtocol));
  if (array.size() != fields) array.refuse(fmt::format("{} fields instead of {}", array.size(), fields));
  return array;
}

std::string kind_in(WireArray& array) {
  std::string kind = array.text("kind", kMostKindBytes);
  try {
    check_kind(kind);
  } catch (const std::invalid_argument& error) {
    array.refuse(error.what());
  }
  return kind;
}

WeightVersion version_in(WireArray& array) {
  WeightVersion version;
  version.number = array.number("version");
  version.digest = array.number("digest");
  return version;
}

}  // namespace

WireArray::WireArray(std::string what, std::string_view bytes, size_t most_items, size_t most_bytes)
    : what_(std::move(what)),
      handle_(std::make_shared<msgpack::object_handle>(unpacked(what_, bytes, most_items, most_bytes))) {
  const msgpack::object& whole = handle_->get();
  if (whole.type != object_type::ARRAY) refuse("no list");
  items_ = whole.via.array.ptr;
  size_ = whole.via.array.size;
}

WireArray::WireArray(std::string what, std::shared_ptr<msgpack::object_handle> handle, const msgpack::object& array)
    : what_(std::move(what)), handle_(std::move(handle)), items_(array.via.array.ptr), size_(array.via.array.size) {}

const msgpack::object& WireArray::next(const char* name) {
  if (at_ == size_) refuse(fmt::format("{} is missing", name));
  return items_[at_++];
}

WireArray WireArray::array() {
  const msgpack::object& value = next("a list");
  if (value.type != object_type::ARRAY) refuse(fmt::format("element {} is no list", at_ - 1));
  return {fmt::format("{}, element {}", what_, at_ - 1), handle_, value};
}

uint64_t WireArray::number(const char* name, uint64_t most) {
  const msgpack::object& value = next(name);
  if (value.type != object_type::POSITIVE_INTEGER) refuse(fmt::format("{} is no whole number from 0 on", name));
  if (value.via.u64 > most) refuse(fmt::format("{} is {}; at most {}", name, value.via.u64, most));
  return value.via.u64;
}

std::string WireArray::text(const char* name, size_t most) {
  const msgpack::object& value = next(name);
  if (value.type != object_type::STR) refuse(fmt::format("{} is no text", name));
  if (value.via.str.size > most) refuse(fmt::format("{} has {} bytes; at most {}", name, value.via.str.size, most));
  return {value.via.str.ptr, value.via.str.size};
}

std::string_view WireArray::binary(const char* name) {
  const msgpack::object& value = next(name);
  if (value.type != object_type::BIN) refuse(fmt::format("{} are no bytes", name));
  return {value.via.bin.ptr, value.via.bin.size};
}

void WireArray::done() const {
  if (at_ != size_) refuse(fmt::format("{} elements; {} are known", size_, at_));
}

void WireArray::refuse(const std::string& reason) const { throw WeightWireError(what_ + ": " + reason); }

std::string encode(const WeightRequest& request) {
  msgpack::sbuffer buffer;
  msgpack::packer out(buffer);
  out.pack_array(kRequestFields);
  out.pack(kWeightProtocol).pack(static_cast<uint8_t>(request.ask)).pack(request.attempt).pack(request.kind);
  out.pack(request.version.number).pack(request.version.digest).pack(request.base).pack(request.chunk);
  out.pack(request.milliseconds);
  return taken(buffer);
}

std::string encode(const WeightAnswer& answer) {
  msgpack::sbuffer buffer;
  msgpack::packer out(buffer);
  out.pack_array(kAnswerFields);
  out.pack(kWeightProtocol).pack(static_cast<uint8_t>(answer.reply)).pack(answer.attempt).pack(answer.chunk);
  out.pack(static_cast<uint8_t>(answer.encoding)).pack(answer.hash);
  return taken(buffer);
}

std::string encode(const WeightAnnouncement& announcement) {
  msgpack::sbuffer buffer;
  msgpack::packer out(buffer);
  out.pack_array(kAnnouncementFields);
  out.pack(kWeightProtocol).pack(announcement.kind);
  out.pack(announcement.version.number).pack(announcement.version.digest);
  return taken(buffer);
}

WeightRequest decode_request(std::string_view bytes) {
  WireArray array = message("request", bytes, kRequestFields);
  WeightRequest request;
  request.ask = static_cast<WeightAsk>(array.number("what is asked", static_cast<uint64_t>(WeightAsk::done)));
  request.attempt = array.number("attempt");
  request.kind = kind_in(array);
  request.version = version_in(array);
  request.base = array.number("base");
  request.chunk = array.number("chunk");
  request.milliseconds = array.number("milliseconds");
  array.done();
  return request;
}

WeightAnswer decode_answer(std::string_view bytes) {
  WireArray array = message("answer", bytes, kAnswerFields);
  WeightAnswer answer;
  answer.reply = static_cast<WeightReply>(array.number("what it is", static_cast<uint64_t>(WeightReply::gone)));
  answer.attempt = array.number("attempt");
  answer.chunk = array.number("chunk");
  answer.encoding =
      static_cast<ChunkEncoding>(array.number("encoding", static_cast<uint64_t>(ChunkEncoding::zstd_xor)));
  answer.hash = array.number("hash");
  array.done();
  return answer;
}

WeightAnnouncement decode_announcement(std::string_view bytes) {
  WireArray array = message("announcement", bytes, kAnnouncementFields);
  WeightAnnouncement announcement;
  announcement.kind = kind_in(array);
  announcement.version = version_in(array);
  array.done();
  return announcement;
}

void check_kind(std::string_view kind) {
  if (kind.empty() || kind.size() > kMostKindBytes || kind.find('\n') != std::string_view::npos)
    throw std::invalid_argument(
        fmt::format("a kind of weights has 1 to {} bytes and no line break: got {}", kMostKindBytes, kind.size()));
}

std::string weight_topic(std::string_view kind) { return std::string(kind) + '\n'; }

std::string kind_of_topic(std::string_view topic) {
  if (topic.empty() || topic.back() != '\n') throw WeightWireError("subscription: no topic of weights");
  std::string kind(topic.substr(0, topic.size() - 1));
  try {
    check_kind(kind);
  } catch (const std::invalid_argument& error) {
    throw WeightWireError(std::string("subscription: ") + error.what());
  }
  return kind;
}

uint64_t hash_of(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

uint64_t hash_of(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

}  // namespace motley::actors
