#include "tests/fuzz/targets.h"

#include <stdexcept>

#include "actors/external/environment.h"
#include "actors/remote/evaluation_wire.h"
#include "actors/remote/learner_wire.h"
#include "actors/remote/setting.h"
#include "actors/remote/wire.h"
#include "actors/remote/work_wire.h"
#include "actors/security/addresses.h"
#include "actors/security/keys.h"
#include "actors/trajectory_file.h"
#include "actors/weights/manifest.h"
#include "actors/weights/wire.h"
#include "app/audit_problem.h"
#include "app/experiment_toml.h"
#include "app/fleet_toml.h"
#include "app/input_error.h"
#include "envs/chat/tool_call.h"
#include "envs/jsonl.h"
#include "envs/repository/patch.h"
#include "envs/repository/task.h"
#include "envs/tokenizer.h"
#include "tensor/config_json.h"
#include "tensor/model_file.h"
#include "tests/fuzz/memory_input.h"
#include "tests/fuzz/seeds.h"

namespace motley::fuzz {
namespace {

/// Whether `decode` takes what it is given; `Refusal` is the error that its header names.
template <class Refusal, class Decode>
bool taken(const Decode& decode) {
  try {
    decode();
    return true;
  } catch (const Refusal&) {
    return false;
  }
}

void require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

bool external_answer(std::string_view bytes) {
  using namespace actors;
  const bool hello = taken<ExternalError>([&] { read_hello(ExternalAnswer(bytes)); });
  const bool scored = taken<ExternalError>([&] {
    ExternalAnswer answer(bytes);
    read_reward(answer, {.low = -1, .high = 1});
    answer.optional_text("observation", kMostTextBytes);
    answer.boolean("done", false);
    answer.done();
  });
  return hello || scored;
}

bool trajectories(std::string_view bytes) {
  const MemoryInput file(bytes);
  return taken<std::runtime_error>([&] { actors::read_trajectories(file.name(), 64); });
}

bool safetensors(std::string_view bytes) {
  const MemoryInput file(bytes);
  return taken<ModelFileError>([&] { read_tensors(file.name()); });
}

bool config_json(std::string_view bytes) {
  return taken<ModelFileError>([&] {
    const TransformerConfig config = config_from_json("config.json", std::string(bytes));
    const std::string text = config_to_json(config);
    require(config_to_json(config_from_json("config.json", text)) == text, "config.json does not come back");
  });
}

bool tokenizer(std::string_view bytes) {
  return taken<std::invalid_argument>([&] {
    const envs::Tokenizer read = envs::Tokenizer::from_json(bytes);
    require(envs::Tokenizer::from_json(read.to_json()) == read, "tokenizer.json does not come back");
    // Any text has tokens that spell it, or a character that no symbol covers.
    taken<std::invalid_argument>([&] {
      const std::string text(bytes.substr(0, 64));
      require(read.decode(read.encode(text)) == text, "a text does not come back from its tokens");
    });
  });
}

bool experiment(std::string_view bytes) {
  const MemoryInput file(bytes);
  return taken<app::InputError>([&] {
    const std::string text = app::experiment_to_toml(app::load_experiment({.file = file.name()}));
    const MemoryInput again(text);
    require(app::experiment_to_toml(app::load_experiment({.file = again.name()})) == text, "a TOML does not come back");
  });
}

bool fleet(std::string_view bytes) {
  const MemoryInput file(bytes);
  return taken<app::InputError>([&] { app::load_fleet(file.name(), {}); });
}

bool audit_problem(std::string_view bytes) {
  const MemoryInput file(bytes);
  return taken<app::InputError>([&] { app::read_problem(file.name()); });
}

bool jsonl(std::string_view bytes) {
  const MemoryInput file(bytes);
  return taken<envs::TaskError>([&] { envs::read_jsonl(file.name(), true); });
}

bool patch(std::string_view bytes) {
  return taken<envs::TaskError>([&] {
    const envs::Patch read = envs::parse_patch(bytes);
    envs::WorkTree tree;
    tree.add("a.txt", {.content = "one\ntwo\nthree\n"});
    envs::touched_paths(read);
    taken<envs::TaskError>([&] { envs::apply_patch(read, tree); });
  });
}

/// The bytes are a reply's text in each of the forms; 0x01 stands for a marker's beginning and end.
bool tool_call(std::string_view bytes) {
  using Call = envs::ChatTemplate::Call;
  std::vector<envs::ReplyPart> parts(1);
  for (const char c : bytes) {
    if (c == '\1') {
      parts.push_back({"", !parts.back().marker});
    } else {
      parts.back().text += c;
    }
  }
  bool called = false;
  for (const Call form : {Call::command, Call::tagged, Call::object}) {
    const envs::ParsedReply reply = envs::parse_call(form, parts);
    require(reply.call.has_value() == reply.error.empty(), "a reply has a call or a reason");
    called = called || reply.call.has_value();
  }
  return called;
}

bool archive(std::string_view bytes) {
  const MemoryInput file(bytes);
  return taken<envs::TaskError>([&] { envs::read_archive(file.name(), {.entries = 100, .bytes = 1 << 20}); });
}

bool key_file(std::string_view bytes) {
  const MemoryInput file(bytes);
  return taken<actors::KeyError>([&] { actors::read_keys(file.name()); });
}

bool address(std::string_view bytes) {
  using namespace actors;
  const bool listens = taken<AddressError>([&] {
    const std::string text = address_text(parse_listen_address(bytes, true));
    require(address_text(parse_listen_address(text, true)) == text, "an address does not come back");
    taken<AddressError>(
        [&] { require(is_loopback(parse_listen_address(bytes, false).host), "listens without a key"); });
  });
  const bool joins = taken<AddressError>([&] { parse_join_address(bytes); });
  return listens || joins;
}

/// The first byte says which body the others are, or 0: a whole frame. (No fuzzer guesses a frame's checksum.)
bool session_frame(std::string_view bytes) {
  using namespace actors;
  if (bytes.empty()) return false;
  const std::string_view rest = bytes.substr(1);
  return taken<WireError>([&] {
    switch (static_cast<FrameKind>(bytes[0])) {
      case FrameKind::decode: {
        const std::string body = requests_body(parse_requests(rest));
        require(requests_body(parse_requests(body)) == body, "requests do not come back");
        break;
      }
      case FrameKind::report: {
        const std::string body = report_body(parse_report(rest, 100));
        require(report_body(parse_report(body, 100)) == body, "a report does not come back");
        break;
      }
      case FrameKind::calibrated:
        require(calibrated_body(parse_calibrated(calibrated_body(parse_calibrated(rest)))) ==
                    calibrated_body(parse_calibrated(rest)),
                "a calibration does not come back");
        break;
      case FrameKind::live:
        parse_live(rest);
        break;
      case FrameKind::note:
        parse_text(rest);
        break;
      case FrameKind::ready: {
        const std::string body = ready_body(parse_ready(rest));
        require(ready_body(parse_ready(body)) == body, "a worker's first word does not come back");
        break;
      }
      case FrameKind::work: {
        const auto [number, job] = parse_work(rest, 100);
        const std::string body = work_body(number, job);
        require(work_body(number, parse_work(body, 100).second) == body, "a call does not come back");
        break;
      }
      case FrameKind::worked: {
        const auto [number, step] = parse_worked(rest);
        wrong_step(step, {.vocabulary = 100, .positions = 64, .context = 3, .replies = 1});
        const std::string body = worked_body(number, step);
        require(worked_body(number, parse_worked(body).second) == body, "what a call came to does not come back");
        break;
      }
      case FrameKind::setting: {
        const std::string body = setting_body(parse_setting(rest));
        require(setting_body(parse_setting(body)) == body, "a setting does not come back");
        break;
      }
      case FrameKind::state: {
        const std::string body = state_body(parse_state(rest));
        require(state_body(parse_state(body)) == body, "a state does not come back");
        break;
      }
      case FrameKind::trained: {
        const std::string body = trained_body(parse_trained(rest));
        require(trained_body(parse_trained(body)) == body, "what was trained does not come back");
        break;
      }
      case FrameKind::evaluate:
        require(
            evaluate_body(parse_evaluate(evaluate_body(parse_evaluate(rest)))) == evaluate_body(parse_evaluate(rest)),
            "an evaluation's head does not come back");
        break;
      case FrameKind::batch:
        require(batch_body(parse_batch(batch_body(parse_batch(rest)))) == batch_body(parse_batch(rest)),
                "a batch's head does not come back");
        break;
      default: {
        const Frame frame = parse_frame(rest);
        require(make_frame(frame.kind, frame.number, frame.body) == rest, "a frame does not come back");
      }
    }
  });
}

/// The first byte says which message the others are.
bool weight_message(std::string_view bytes) {
  using namespace actors;
  if (bytes.empty()) return false;
  const std::string_view rest = bytes.substr(1);
  return taken<WeightWireError>([&] {
    switch (bytes[0] & 3) {
      case 0: {
        const WeightRequest request = decode_request(rest);
        require(decode_request(encode(request)) == request, "a request does not come back");
        break;
      }
      case 1: {
        const WeightAnswer answer = decode_answer(rest);
        require(decode_answer(encode(answer)) == answer, "an answer does not come back");
        break;
      }
      case 2: {
        const WeightAnnouncement announcement = decode_announcement(rest);
        require(decode_announcement(encode(announcement)) == announcement, "an announcement does not come back");
        break;
      }
      default:
        require(weight_topic(kind_of_topic(rest)) == rest, "a topic does not come back");
    }
  });
}

bool weight_manifest(std::string_view bytes) {
  using namespace actors;
  return taken<WeightWireError>([&] {
    const WeightManifest manifest = decode_manifest(bytes);
    require(decode_manifest(encode(manifest)) == manifest, "a manifest does not come back");
  });
}

}  // namespace

const std::map<std::string, Target>& targets() {
  static const std::map<std::string, Target> all{
      {"address", {address, address_seeds}},
      {"archive", {archive, archive_seeds}},
      {"audit_problem", {audit_problem, audit_problem_seeds}},
      {"config_json", {config_json, config_json_seeds}},
      {"experiment", {experiment, experiment_seeds}},
      {"external_answer", {external_answer, external_answer_seeds}},
      {"fleet", {fleet, fleet_seeds}},
      {"jsonl", {jsonl, jsonl_seeds}},
      {"key_file", {key_file, key_file_seeds}},
      {"patch", {patch, patch_seeds}},
      {"safetensors", {safetensors, safetensors_seeds}},
      {"session_frame", {session_frame, session_frame_seeds}},
      {"tokenizer", {tokenizer, tokenizer_seeds}},
      {"tool_call", {tool_call, tool_call_seeds}},
      {"trajectories", {trajectories, trajectories_seeds}},
      {"weight_manifest", {weight_manifest, weight_manifest_seeds}},
      {"weight_message", {weight_message, weight_message_seeds}},
  };
  return all;
}

}  // namespace motley::fuzz
