// Episodes of several replies that a server plays: what is read, what is drawn, and how they end.
#include <mutex>

#include "envs/environment.h"
#include "envs/interaction.h"
#include "tests/actors/external_server.h"

namespace motley::actors {
namespace {

using Answers = std::vector<std::string>;
using Ids = std::vector<int32_t>;
using Drawn = std::vector<uint8_t>;

/// Symbols 1, 2 and =; a game of as many replies as `answer` says. Keeps what it was asked.
class GameServer {
 public:
  using Reply = std::function<void(const Asked&, Fields&)>;
  explicit GameServer(Reply reply)
      : reply_(std::move(reply)),
        server_(std::make_unique<ExternalServer>(address(), [this](const Asked& ask) { return answer(ask); })) {}

  std::unique_ptr<envs::Task> task(envs::Options options = {}) const {
    options.emplace("address", address());
    options.emplace("answer_seconds", "5");
    options.emplace("away_seconds", "0.5");
    return envs::find_task("external")->make(options);
  }
  /// "begin", "reply 0 12 true", "end turn_limit", ...
  std::vector<std::string> asked() {
    const std::lock_guard lock(mutex_);
    return asked_;
  }
  void stop() { server_.reset(); }

 private:
  std::string address() const { return "ipc://" + (folder_ / "socket").string(); }
  Answers answer(const Asked& ask) {
    const auto what = ask.get<std::string>("do");
    if (what == "hello") return {hello_of(ask).add("interacts", true).add("demonstrations", true).bytes()};
    std::string text = what;
    if (what == "reply")
      text += " " + std::to_string(ask.get<int>("turn")) + " " + ask.get<std::string>("reply") +
              (ask.get<bool>("ended") ? "" : " cut");
    if (what == "end") text += " " + ask.get<std::string>("reason");
    {
      const std::lock_guard lock(mutex_);
      asked_.push_back(text);
    }
    Fields fields(ask.get<uint64_t>("id"));
    if (what == "begin") fields.add("demonstration", "2");
    if (what == "end") fields.add("reward", 0.25);
    if (what == "reply") reply_(ask, fields);
    return {fields.bytes()};
  }

  const TemporaryFolder folder_;
  const Reply reply_;
  std::mutex mutex_;
  std::vector<std::string> asked_;
  std::unique_ptr<ExternalServer> server_;
};

const envs::Tokenizer kTokenizer({"1", "2", "="});  // ids 0, 1, 2; <eos> is 5
constexpr int32_t kEos = 5;
const envs::Problem kProblem{"1=", "x", "", {}};

std::unique_ptr<envs::Interaction> interact(const envs::Task& task, int64_t tokens = 64) {
  return task.interact(kProblem, kTokenizer, {.tokens = tokens, .reply_tokens = 4});
}

void goes_on(const Asked&, Fields& fields) { fields.add("observation", "=2"); }

TEST_CASE("an episode at a server: replies stay as they were drawn, what it says is read, its reward ends it",
          "[external]") {
  GameServer server([](const Asked& ask, Fields& fields) {
    if (ask.get<int>("turn") < 2) return goes_on(ask, fields);
    const std::map<std::string, double> parts{{"moves", 3}};
    fields.add("reward", 0.5).add("parts", parts).add("end", "won");
  });
  const auto task = server.task();
  CHECK(task->interacts());
  const auto episode = interact(*task);
  CHECK(episode->begin() == 4);
  CHECK(episode->context() == Ids{0, 2});
  CHECK(episode->replied(Ids{0, 2}, Ids{1, kEos}) == 4);
  CHECK(episode->context() == Ids{0, 2, 1, kEos, 2, 1});
  CHECK(episode->drawn() == Drawn{0, 0, 1, 1, 0, 0});
  CHECK_THROWS_AS(episode->replied(Ids{0, 2, 1, kEos, 2}, Ids{kEos}), std::logic_error);
  CHECK(episode->replied(Ids(episode->context()), Ids{0, 0, 0, 0}) == 4);  // cut off: an end token is read after it
  CHECK(episode->context() == Ids{0, 2, 1, kEos, 2, 1, 0, 0, 0, 0, kEos, 2, 1});
  CHECK(episode->drawn() == Drawn{0, 0, 1, 1, 0, 0, 1, 1, 1, 1, 0, 0, 0});
  CHECK_FALSE(episode->replied(Ids(episode->context()), Ids{kEos}));
  CHECK(episode->drawn().size() == episode->context().size());
  const envs::InteractionOutcome outcome = episode->outcome();
  CHECK(outcome.failure.empty());
  CHECK(outcome.end == "won");
  CHECK(outcome.reward.value == 0.5);
  CHECK(outcome.reward.parts.at("moves") == 3);
  CHECK_FALSE(outcome.truncated);
  CHECK(server.asked() == std::vector<std::string>{"begin", "reply 0 2", "reply 1 1111 cut", "reply 2 "});
}

TEST_CASE("an episode at a server that a limit ends is scored as it stands", "[external]") {
  GameServer server(goes_on);
  const bool by_turns = GENERATE(true, false);
  const auto task = server.task({{"turns", by_turns ? "2" : "100"}});
  const auto episode = interact(*task, by_turns ? 64 : 8);
  std::optional<int64_t> most = episode->begin();
  for (; most; most = episode->replied(Ids(episode->context()), Ids{kEos})) CHECK(*most <= 4);
  // By tokens: 2, +1+2, +1+2 would fill all 8 positions and leave none to draw.
  CHECK(episode->context().size() == 6);
  CHECK(episode->drawn().back() == 1);
  const envs::InteractionOutcome outcome = episode->outcome();
  CHECK(outcome.end == (by_turns ? "turn_limit" : "token_limit"));
  CHECK(outcome.truncated);
  CHECK(outcome.reward.value == 0.25);
  CHECK(server.asked().back() == "end " + outcome.end);
}

TEST_CASE("an episode at a server that fails has a reason and no reward", "[external]") {
  std::function<void(Fields&)> bad;
  std::string says;
  SECTION("an error") {
    bad = [](Fields& fields) { fields.add("error", "no such episode"); };
    says = "\"reply\": the server says: no such episode";
  }
  SECTION("neither") {
    bad = [](Fields&) {};
    says = "needs one of \"observation\" (the episode goes on) and \"reward\" (it is over)";
  }
  SECTION("both") {
    bad = [](Fields& fields) { fields.add("reward", 1).add("observation", "1"); };
    says = "needs one of";
  }
  SECTION("no finite reward") {
    bad = [](Fields& fields) { fields.add("reward", std::nan("")); };
    says = "\"reward\" is nan; it must be finite";
  }
  SECTION("an end that is no word") {
    bad = [](Fields& fields) { fields.add("reward", 1).add("end", "a b"); };
    says = "\"end\" is no word";
  }
  SECTION("a text that no symbol covers") {
    bad = [](Fields& fields) { fields.add("observation", "1x"); };
    says = "\"observation\": ";
  }
  GameServer server([&](const Asked&, Fields& fields) { bad(fields); });
  const auto task = server.task();
  const auto episode = interact(*task);
  REQUIRE(episode->begin());
  CHECK_FALSE(episode->replied(Ids(episode->context()), Ids{kEos}));
  const envs::InteractionOutcome outcome = episode->outcome();
  CHECK(outcome.end == "failed");
  CHECK_THAT(outcome.failure, Catch::Contains(says));
  CHECK_FALSE(outcome.truncated);
}

TEST_CASE("a server that goes away in mid-episode fails it; one that is destroyed early is closed there",
          "[external]") {
  GameServer server(goes_on);
  const auto task = server.task();
  interact(*task).reset();
  const auto episode = interact(*task);  // its answer comes after "close" was read
  CHECK(server.asked() == std::vector<std::string>{"begin", "close", "begin"});
  REQUIRE(episode->begin());
  server.stop();
  CHECK_FALSE(episode->replied(Ids(episode->context()), Ids{kEos}));
  CHECK_THAT(episode->outcome().failure, Catch::Contains("\"reply\": no server for 0.5 s"));
  CHECK_THROWS_WITH(interact(*task), Catch::Contains("\"begin\": no server for 0.5 s"));
}

TEST_CASE("a demonstration at a server: its own replies, until the reward", "[external]") {
  GameServer server([](const Asked& ask, Fields& fields) {
    if (ask.get<std::string>("reply") == "1") return static_cast<void>(fields.add("reward", 1));
    fields.add("observation", "=").add("demonstration", "1");
  });
  const auto task = server.task();
  const auto shown = task->demonstrate(kProblem, kTokenizer, {.tokens = 64, .reply_tokens = 4});
  CHECK(shown.tokens == Ids{0, 2, 1, kEos, 2, 0, kEos});
  CHECK(shown.drawn == Drawn{0, 0, 1, 1, 0, 1, 1});
  GameServer silent(goes_on);
  CHECK_THROWS_WITH(silent.task()->demonstrate(kProblem, kTokenizer, {.tokens = 64, .reply_tokens = 4}),
                    Catch::Contains("a demonstration that stops before its episode ends"));
}

}  // namespace
}  // namespace motley::actors
