#include "actors/remote/wire.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>

#include "actors/remote/fields.h"

namespace motley::actors {
namespace {

constexpr std::string_view kMagic = "MTLY";
constexpr size_t kHeaderBytes = 24;
constexpr size_t kMostText = 4096;
constexpr size_t kMostSessions = 65536;              // of one frame
constexpr uint64_t kMostTokens = uint64_t{1} << 31;  // of a sequence
constexpr std::array<std::string_view, 4> kRecordNames{"sampled", "candidates", "top_k", "full"};
constexpr std::array<std::string_view, 4> kFinishNames{"none", "stop", "length", "failed"};

uint64_t read_u64(std::string_view bytes, size_t place) {
  uint64_t value = 0;
  std::memcpy(&value, bytes.data() + place, sizeof(value));
  return value;
}

void append_u64(std::string& out, uint64_t value) { out.append(reinterpret_cast<const char*>(&value), sizeof(value)); }

template <size_t N>
size_t index_of(const std::array<std::string_view, N>& names, std::string_view key, std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) Fields::fail(key, "is \"" + std::string(name) + "\", which is none of its words");
  return static_cast<size_t>(found - names.begin());
}

std::string taken(const msgpack::sbuffer& buffer) { return {buffer.data(), buffer.size()}; }

GenerateRequest parse_request(const msgpack::object& object) {
  const Fields fields(object);
  GenerateRequest request;
  request.id = fields.number("id");
  request.tokens = fields.array<int32_t>("tokens");
  request.max_new_tokens = static_cast<int64_t>(fields.number("max_new_tokens", kMostTokens));
  request.stop_tokens = fields.array<int32_t>("stop_tokens");
  request.rule = {.temperature = fields.real("temperature", 0.0, 1e6),
                  .top_p = fields.real("top_p", std::numeric_limits<double>::min(), 1.0),
                  .top_k = static_cast<int32_t>(fields.number("top_k", kMostTokens - 1))};
  request.record = static_cast<RecordKind>(index_of(kRecordNames, "record", fields.text("record", 16)));
  request.record_top_k = static_cast<int64_t>(fields.number("record_top_k", kMostTokens));
  request.key = {.seed = fields.number("seed"),
                 .purpose = static_cast<kernels::Purpose>(fields.number("purpose", 255)),
                 .session = fields.number("session"),
                 .attempt = static_cast<uint32_t>(fields.number("attempt", ~uint32_t{0}))};
  if (fields.has("vocabulary")) request.vocabulary = static_cast<int64_t>(fields.number("vocabulary", kMostTokens));
  return request;
}

/// Every log-probability is a number, -inf included, and no more than rounding above 0.
void check_log_probabilities(std::string_view key, std::span<const float> values) {
  constexpr float kRounding = 1e-3f;
  for (const float value : values)
    if (!(value <= kRounding)) Fields::fail(key, "holds what is no log-probability");
}

StepOutput parse_output(const msgpack::object& object, int64_t vocabulary) {
  const Fields fields(object);
  StepOutput output;
  output.id = fields.number("id");
  output.finish = static_cast<FinishReason>(index_of(kFinishNames, "finish", fields.text("finish", 16)));
  output.error = fields.text("error", kMostText);
  TokenRecords& records = output.records;
  records.tokens = fields.array<int32_t>("tokens");
  records.log_q = fields.array<float>("log_q");
  records.versions = fields.array<uint64_t>("versions");
  records.offsets = fields.array<int64_t>("offsets");
  records.ids = fields.array<int32_t>("ids");
  records.id_log_q = fields.array<float>("id_log_q");
  records.log_tail = fields.array<float>("log_tail");
  if (!records.consistent(vocabulary)) throw WireError("records do not agree with themselves or with the vocabulary");
  check_log_probabilities("log_q", records.log_q);
  check_log_probabilities("id_log_q", records.id_log_q);
  check_log_probabilities("log_tail", records.log_tail);
  return output;
}

}  // namespace

std::string make_frame(FrameKind kind, uint64_t number, std::string_view body) {
  std::string frame;
  frame.reserve(kHeaderBytes + body.size());
  frame += kMagic;
  frame += static_cast<char>(kFleetProtocol);
  frame += static_cast<char>(kind);
  frame.append(2, '\0');
  append_u64(frame, number);
  append_u64(frame, XXH3_64bits(body.data(), body.size()));
  frame += body;
  return frame;
}

Frame parse_frame(std::string_view bytes) {
  if (bytes.size() < kHeaderBytes || !bytes.starts_with(kMagic)) throw WireError("it is no frame of motley's");
  if (static_cast<uint8_t>(bytes[4]) != kFleetProtocol)
    throw WireError("it speaks protocol " + std::to_string(static_cast<uint8_t>(bytes[4])) + ", not " +
                    std::to_string(kFleetProtocol));
  if (bytes[6] != 0 || bytes[7] != 0) throw WireError("a frame's spare bytes are not zero");
  Frame frame{
      .kind = static_cast<FrameKind>(bytes[5]), .number = read_u64(bytes, 8), .body = bytes.substr(kHeaderBytes)};
  if (read_u64(bytes, 16) != XXH3_64bits(frame.body.data(), frame.body.size()))
    throw WireError("a frame's checksum is wrong");
  return frame;
}

std::string hello_body(const HelloBody& hello) {
  msgpack::sbuffer out;
  MapWriter(out, 3).field("protocol", hello.protocol).field("name", hello.name).field("group", hello.group);
  return taken(out);
}

std::string welcome_body(const WelcomeBody& welcome) {
  msgpack::sbuffer out;
  MapWriter(out, 10)
      .field("replica", welcome.replica)
      .field("slots", welcome.slots)
      .field("vocabulary", welcome.vocabulary)
      .field("silence_ms", welcome.silence_ms)
      .field("group", welcome.group)
      .field("profile", welcome.profile)
      .field("model", welcome.model)
      .field("weights", welcome.weights)
      .field("fetch_port", welcome.fetch_port)
      .field("announce_port", welcome.announce_port);
  return taken(out);
}

std::string text_body(std::string_view text) {
  msgpack::sbuffer out;
  MapWriter(out, 1).field("text", text.substr(0, kMostText));
  return taken(out);
}

std::string requests_body(const std::vector<GenerateRequest>& requests) {
  msgpack::sbuffer out;
  MapWriter(out, 1).list("requests", requests.size());
  for (const GenerateRequest& request : requests) {
    MapWriter(out, request.vocabulary ? 14 : 13)
        .field("id", request.id)
        .array("tokens", request.tokens)
        .field("max_new_tokens", request.max_new_tokens)
        .array("stop_tokens", request.stop_tokens)
        .field("temperature", request.rule.temperature)
        .field("top_p", request.rule.top_p)
        .field("top_k", request.rule.top_k)
        .field("record", kRecordNames[static_cast<size_t>(request.record)])
        .field("record_top_k", request.record_top_k)
        .field("seed", request.key.seed)
        .field("purpose", static_cast<uint8_t>(request.key.purpose))
        .field("session", request.key.session)
        .field("attempt", request.key.attempt);
    if (!request.vocabulary) continue;
    msgpack::packer<msgpack::sbuffer>(out).pack("vocabulary").pack(*request.vocabulary);
  }
  return taken(out);
}

std::string report_body(const DecodeReport& report) {
  msgpack::sbuffer out;
  const DecodeCounts& c = report.counts;
  MapWriter(out, 2).list("counts", 9);
  msgpack::packer<msgpack::sbuffer> packer(out);
  for (const uint64_t count :
       {c.tokens, c.busy_ns, c.full_tokens, c.full_ns, c.steps, c.rows, c.prefill_rows, c.shared_rows, c.kept_rows})
    packer.pack(count);
  packer.pack("outputs").pack_array(static_cast<uint32_t>(report.outputs.size()));
  for (const StepOutput& output : report.outputs)
    MapWriter(out, 10)
        .field("id", output.id)
        .field("finish", kFinishNames[static_cast<size_t>(output.finish)])
        .field("error", std::string_view(output.error).substr(0, kMostText))
        .array("tokens", output.records.tokens)
        .array("log_q", output.records.log_q)
        .array("versions", output.records.versions)
        .array("offsets", output.records.offsets)
        .array("ids", output.records.ids)
        .array("id_log_q", output.records.id_log_q)
        .array("log_tail", output.records.log_tail);
  return taken(out);
}

std::string calibrated_body(const Calibration& calibration) {
  msgpack::sbuffer out;
  MapWriter(out, 2).field("tokens", calibration.tokens).field("busy_ns", calibration.busy_ns);
  return taken(out);
}

std::string live_body(const LiveBody& live) {
  msgpack::sbuffer out;
  MapWriter(out, 2).field("version", live.version).field("digest", live.digest);
  return taken(out);
}

std::string parse_text(std::string_view body) {
  const msgpack::object_handle handle = unpack_body(body);
  return std::string(Fields(handle.get()).text("text", kMostText));
}

std::vector<GenerateRequest> parse_requests(std::string_view body) {
  const msgpack::object_handle handle = unpack_body(body);
  std::vector<GenerateRequest> requests;
  for (const msgpack::object* object : Fields(handle.get()).list("requests", kMostSessions))
    requests.push_back(parse_request(*object));
  return requests;
}

DecodeReport parse_report(std::string_view body, int64_t vocabulary) {
  const msgpack::object_handle handle = unpack_body(body);
  const Fields fields(handle.get());
  const auto counts = fields.list("counts", 9);
  if (counts.size() != 9) Fields::fail("counts", "has not 9 numbers");
  DecodeReport report;
  DecodeCounts& c = report.counts;
  size_t i = 0;
  for (uint64_t* count : {&c.tokens, &c.busy_ns, &c.full_tokens, &c.full_ns, &c.steps, &c.rows, &c.prefill_rows,
                          &c.shared_rows, &c.kept_rows}) {
    const msgpack::object& number = *counts[i++];
    if (number.type != msgpack::type::POSITIVE_INTEGER || number.via.u64 > uint64_t{1} << 53)
      Fields::fail("counts", "holds what is no count");
    *count = number.via.u64;
  }
  for (const msgpack::object* object : fields.list("outputs", kMostSessions))
    report.outputs.push_back(parse_output(*object, vocabulary));
  return report;
}

Calibration parse_calibrated(std::string_view body) {
  const msgpack::object_handle handle = unpack_body(body);
  const Fields fields(handle.get());
  return {.tokens = fields.number("tokens", uint64_t{1} << 53), .busy_ns = fields.number("busy_ns", uint64_t{1} << 62)};
}

HelloBody parse_hello(std::string_view body) {
  const msgpack::object_handle handle = unpack_body(body);
  const Fields fields(handle.get());
  return {.protocol = fields.number("protocol"),
          .name = std::string(fields.text("name", 256)),
          .group = std::string(fields.text("group", 256))};
}

LiveBody parse_live(std::string_view body) {
  const msgpack::object_handle handle = unpack_body(body);
  const Fields fields(handle.get());
  return {.version = fields.number("version"), .digest = fields.number("digest")};
}

}  // namespace motley::actors
