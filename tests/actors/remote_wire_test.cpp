// Frames between a run and its samplers elsewhere: the way there and back, and everything that is none.
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <limits>

#include "actors/remote/setting.h"
#include "actors/remote/wire.h"

namespace motley::actors {
namespace {

constexpr int64_t kVocabulary = 100;

std::vector<GenerateRequest> some_requests() {
  GenerateRequest one;
  one.id = ~uint64_t{0} - 3;
  one.tokens = {1, 2, 99};
  one.max_new_tokens = 7;
  one.stop_tokens = {0};
  one.rule = {.temperature = 0.1, .top_p = 0.99, .top_k = 5};
  one.record = RecordKind::candidates;
  one.record_top_k = 3;
  one.key = {.seed = 9, .purpose = kernels::Purpose::train, .session = ~uint64_t{0}, .attempt = 2};
  one.vocabulary = 98;
  GenerateRequest two;
  two.tokens = {5};
  two.max_new_tokens = 1;
  return {one, two};
}

DecodeReport some_report() {
  DecodeReport report;
  report.counts = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  StepOutput output;
  output.id = 12;
  output.records.tokens = {3, 4};
  output.records.log_q = {-0.0f, -std::numeric_limits<float>::infinity()};
  output.records.versions = {0, ~uint64_t{0}};
  output.records.offsets = {0, 2, 3};
  output.records.ids = {3, 7, 4};
  output.records.id_log_q = {-0.5f, -1e-40f, -1.0f};
  output.records.log_tail = {-2.0f, -std::numeric_limits<float>::infinity()};
  output.finish = FinishReason::stop;
  report.outputs = {output, {.id = 13, .records = {}, .finish = FinishReason::failed, .error = "no room"}};
  return report;
}

}  // namespace

TEST_CASE("frames: a body comes back with its kind and number; any other byte in it is refused") {
  const std::string frame = make_frame(FrameKind::report, 77, "body");
  const Frame back = parse_frame(frame);
  CHECK(back.kind == FrameKind::report);
  CHECK(back.number == 77);
  CHECK(back.body == "body");
  CHECK(parse_frame(make_frame(FrameKind::ping, 0, "")).body.empty());
  for (size_t length = 0; length < frame.size(); ++length) {
    CAPTURE(length);
    CHECK_THROWS_AS(parse_frame(std::string_view(frame).substr(0, length)), WireError);
  }
  for (const size_t place :
       {size_t{0}, size_t{3}, size_t{4}, size_t{6}, size_t{7}, size_t{16}, size_t{23}, frame.size() - 1}) {
    std::string wrong = frame;
    wrong[place] = static_cast<char>(wrong[place] ^ 1);
    CAPTURE(place);
    CHECK_THROWS_AS(parse_frame(wrong), WireError);
  }
}

TEST_CASE("requests and reports come back bit for bit") {
  const std::vector<GenerateRequest> requests = some_requests();
  const std::vector<GenerateRequest> back = parse_requests(requests_body(requests));
  REQUIRE(back.size() == requests.size());
  for (size_t i = 0; i < back.size(); ++i) {
    CHECK(back[i].id == requests[i].id);
    CHECK(back[i].tokens == requests[i].tokens);
    CHECK(back[i].max_new_tokens == requests[i].max_new_tokens);
    CHECK(back[i].stop_tokens == requests[i].stop_tokens);
    CHECK(back[i].rule.temperature == requests[i].rule.temperature);
    CHECK(back[i].rule.top_p == requests[i].rule.top_p);
    CHECK(back[i].rule.top_k == requests[i].rule.top_k);
    CHECK(back[i].record == requests[i].record);
    CHECK(back[i].record_top_k == requests[i].record_top_k);
    CHECK(back[i].key.seed == requests[i].key.seed);
    CHECK(back[i].key.purpose == requests[i].key.purpose);
    CHECK(back[i].key.session == requests[i].key.session);
    CHECK(back[i].key.attempt == requests[i].key.attempt);
    CHECK(back[i].vocabulary == requests[i].vocabulary);
  }
  const DecodeReport report = some_report(), read = parse_report(report_body(report), kVocabulary);
  CHECK(read.counts == report.counts);
  REQUIRE(read.outputs.size() == 2);
  CHECK(read.outputs[0].records == report.outputs[0].records);
  CHECK(std::signbit(read.outputs[0].records.log_q[0]));
  CHECK(std::bit_cast<uint32_t>(read.outputs[0].records.id_log_q[1]) == std::bit_cast<uint32_t>(-1e-40f));
  CHECK(read.outputs[0].finish == FinishReason::stop);
  CHECK(read.outputs[1].finish == FinishReason::failed);
  CHECK(read.outputs[1].error == "no room");
  CHECK(parse_calibrated(calibrated_body({5, 6})).busy_ns == 6);
  CHECK(parse_live(live_body({8, ~uint64_t{0}})).digest == ~uint64_t{0});
  CHECK(parse_text(text_body("why")) == "why");
}

TEST_CASE("bodies that are cut short, or have a byte changed, are refused or still make sense") {
  for (const std::string& body : {requests_body(some_requests()), report_body(some_report())}) {
    const auto parse = [&](std::string_view bytes) {
      parse_requests(bytes);
      parse_report(bytes, kVocabulary);
    };
    for (size_t length = 0; length < body.size(); ++length)
      CHECK_THROWS_AS(parse(std::string_view(body).substr(0, length)), WireError);
    CHECK_THROWS_AS(parse(body + "x"), WireError);
  }
  const std::string body = report_body(some_report());
  for (size_t place = 0; place < body.size(); ++place)
    for (const int change : {1, 0x80, 0xff}) {
      std::string wrong = body;
      wrong[place] = static_cast<char>(wrong[place] ^ change);
      try {
        for (const StepOutput& output : parse_report(wrong, kVocabulary).outputs)
          CHECK(output.records.consistent(kVocabulary));
      } catch (const WireError&) {
      }
    }
}

TEST_CASE("reports that do not agree with themselves are refused") {
  const auto refused = [](const std::function<void(StepOutput&)>& change) {
    DecodeReport report = some_report();
    change(report.outputs[0]);
    CHECK_THROWS_AS(parse_report(report_body(report), kVocabulary), WireError);
  };
  refused([](StepOutput& o) { o.records.tokens[0] = kVocabulary; });
  refused([](StepOutput& o) { o.records.tokens[0] = -1; });
  refused([](StepOutput& o) { o.records.tokens.pop_back(); });
  refused([](StepOutput& o) { o.records.ids[1] = 3; });
  refused([](StepOutput& o) { o.records.offsets[1] = 5; });
  refused([](StepOutput& o) { o.records.log_q[0] = std::numeric_limits<float>::quiet_NaN(); });
  refused([](StepOutput& o) { o.records.log_q[0] = 1.0f; });
  refused([](StepOutput& o) { o.records.log_tail[0] = std::numeric_limits<float>::infinity(); });
}

TEST_CASE("a setting comes back, and one that is cut short or makes no sense is refused") {
  TransformerConfig model;
  model.vocabulary = 10;
  model.layers = 1;
  model.width = 32;
  model.heads = 2;
  model.kv_heads = 1;
  Setting setting{.experiment = "name = \"x\"\n", .model = model.resolved(), .tokenizer = envs::Tokenizer({"1", "+"})};
  const std::string body = setting_body(setting);
  const Setting back = parse_setting(body);
  CHECK(back.experiment == setting.experiment);
  CHECK(back.model == setting.model);
  CHECK(back.tokenizer == setting.tokenizer);
  for (size_t length = 0; length < body.size(); length += 7)
    CHECK_THROWS_AS(parse_setting(std::string_view(body).substr(0, length)), WireError);
  setting.tokenizer = envs::Tokenizer({"1", "2", "3", "4", "5", "6", "7", "8"});
  CHECK_THROWS_WITH(parse_setting(setting_body(setting)), "a tokenizer of 11 ids for a model of 10");
  setting.experiment.assign(size_t{2} << 20, 'x');
  CHECK_THROWS_WITH(parse_setting(setting_body(setting)), "field \"experiment\" is longer than 1048576 bytes");
}

TEST_CASE("requests out of range are refused") {
  const auto refused = [](const std::function<void(GenerateRequest&)>& change) {
    std::vector<GenerateRequest> requests = some_requests();
    change(requests[0]);
    CHECK_THROWS_AS(parse_requests(requests_body(requests)), WireError);
  };
  refused([](GenerateRequest& r) { r.rule.temperature = std::numeric_limits<double>::quiet_NaN(); });
  refused([](GenerateRequest& r) { r.rule.temperature = -1.0; });
  refused([](GenerateRequest& r) { r.rule.top_p = 0.0; });
  refused([](GenerateRequest& r) { r.rule.top_p = std::numeric_limits<double>::infinity(); });
  refused([](GenerateRequest& r) { r.max_new_tokens = -1; });
  refused([](GenerateRequest& r) { r.rule.top_k = -1; });
}

}  // namespace motley::actors
