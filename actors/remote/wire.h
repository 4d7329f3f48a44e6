// What travels between a run and its samplers in other processes, beside weights: frames with a checksum and a running
// number, whose bodies are msgpack maps with text keys (docs/sampler-protocol.md). Bytes from the network are
// untrusted: sizes, types, ranges and counts are checked before anything is made of them. Free of CAF and ZeroMQ.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "actors/decoder.h"

namespace motley::actors {

/// Bytes that are no frame, or a body that is not what its frame says: the peer that sent them is given up.
class WireError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline constexpr uint64_t kFleetProtocol = 1;  // of the handshake and of these frames
inline constexpr int64_t kMostFrameBytes = int64_t{256} << 20;

enum class FrameKind : uint8_t {
  // of a sampler
  attach = 1,      // token: the first frame
  ping = 2,        // nothing to say, but alive
  report = 3,      // counts, and records of sessions
  calibrated = 4,  // tokens, busy_ns
  live = 5,        // version, digest: the weights that it computes with from now on
  note = 6,        // text, for the run's log
  leaving = 7,     // it has reported everything and goes
  hello = 8,       // protocol, name, group: the first frame of an engine that speaks frames alone
  // of a worker (actors/remote/work_wire.h), which also attaches, pings, notes and leaves
  ready = 9,     // slots, tasks: it has the run's tasks; of an evaluator, too
  worked = 10,   // number, and what the call came to
  closing = 11,  // it takes no more work
  // of the run
  attached = 16,
  pong = 17,
  decode = 18,     // requests
  calibrate = 19,  // requests
  retire = 20,     // it shall report everything and go
  refused = 21,    // text: why nothing more will be heard
  welcome = 22,    // of a hello: what it is in this run
  setting = 23,    // of the run, to a worker, a learner or an evaluator: the first (actors/remote/setting.h)
  unfit = 24,      // text: why it may not join, whatever it tries again
  work = 25,       // number, and the call into a task
  // between a run and a learner (actors/remote/learner_wire.h)
  start = 32,    // of the run: the state to go on from
  batch = 33,    // of the run: an update's trajectories
  trained = 34,  // its metrics and weights
  save = 35,     // of the run: it wants the state
  state = 36,
  part = 37,     // bytes that belong to one of these
  taken = 38,    // a part has been read
  leave = 39,    // of the learner: it would like to go
  release = 40,  // of the run: it may
  failed = 41,   // text: why it cannot compute; it goes
  // between a run and an evaluator (actors/remote/evaluation_wire.h), where `part`, `taken` and `failed` are the same
  evaluate = 42,   // of the run: update, version and weights
  evaluated = 43,  // its metrics
};

struct Frame {
  FrameKind kind = FrameKind::ping;
  uint64_t number = 0;    // of the sender's frames on this connection, from 0 on
  std::string_view body;  // in the bytes that were parsed
};

/// Header (24 bytes: "MTLY", protocol, kind, two zeros, number, XXH3-64 of the body; little endian) and body.
std::string make_frame(FrameKind kind, uint64_t number, std::string_view body);
/// Throws WireError.
Frame parse_frame(std::string_view bytes);

struct LiveBody {
  uint64_t version = 0, digest = 0;
};

/// Of an engine that is no motley: it joins here, and not at the gate.
struct HelloBody {
  uint64_t protocol = kFleetProtocol;
  std::string name, group;  // for messages; of [[samplers]]
};
struct WelcomeBody {
  uint64_t replica = 0, slots = 0, vocabulary = 0, silence_ms = 0;
  std::string group, profile, model, weights;  // profile: in words; model: config.json; weights: their topic
  uint64_t fetch_port = 0, announce_port = 0;
};

std::string hello_body(const HelloBody& hello);
std::string welcome_body(const WelcomeBody& welcome);
std::string text_body(std::string_view text);
std::string requests_body(const std::vector<GenerateRequest>& requests);
std::string report_body(const DecodeReport& report);
std::string calibrated_body(const Calibration& calibration);
std::string live_body(const LiveBody& live);

/// Each throws WireError. Texts are cut at 4 KiB.
std::string parse_text(std::string_view body);
std::vector<GenerateRequest> parse_requests(std::string_view body);
/// Records agree with themselves and with a vocabulary of so many ids; log-probabilities are no NaN and at most 0 but
/// for rounding.
DecodeReport parse_report(std::string_view body, int64_t vocabulary);
Calibration parse_calibrated(std::string_view body);
LiveBody parse_live(std::string_view body);
HelloBody parse_hello(std::string_view body);

}  // namespace motley::actors
