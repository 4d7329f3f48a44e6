// The external environment against servers that are slow, broken, hostile, or gone.
#include <barrier>

#include "actors/external/client.h"
#include "envs/environment.h"
#include "envs/interaction.h"
#include "tests/actors/external_server.h"

namespace motley::actors {
namespace {

using Answers = std::vector<std::string>;

std::string address_in(const TemporaryFolder& folder) { return "ipc://" + (folder / "socket").string(); }

std::unique_ptr<envs::Task> make(const std::string& address, envs::Options options = {}) {
  options.emplace("address", address);
  options.emplace("answer_seconds", "5");
  options.emplace("away_seconds", "5");
  return envs::find_task("external")->make(options);
}

/// "hello" is answered properly, everything else by the test.
ExternalServer::Answer after_hello(ExternalServer::Answer answer) {
  return [answer = std::move(answer)](const Asked& ask) {
    return ask.get<std::string>("do") == "hello" ? Answers{hello_of(ask).bytes()} : answer(ask);
  };
}

std::string failure(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "nothing failed";
}
std::string score_failure(const envs::Task& task) {
  return failure([&] { task.reward({"1=", "2", "", {}}, "2", true); });
}

TEST_CASE("problems and rewards come from the server, with what it said going back to it", "[external]") {
  const TemporaryFolder folder;
  const ExternalServer server(address_in(folder), [](const Asked& ask) -> Answers {
    const auto what = ask.get<std::string>("do");
    const auto id = ask.get<uint64_t>("id");
    if (ask.get<int>("motley") != 1) return {};
    if (what == "hello") return {hello_of(ask).add("version", "3").add("held_out", 9).bytes()};
    if (what == "problem") {
      const auto index = ask.get<uint64_t>("index");
      const bool held_out = ask.get<bool>("held_out");
      return {Fields(id).add("prompt", held_out ? "2=" : "1=").add("answer", std::to_string(index)).bytes()};
    }
    if (what != "score" || ask.get<std::string>("prompt") != "1=" || !ask.get<bool>("ended")) return {};
    return {Fields(id).add("reward", ask.get<std::string>("reply") == ask.get<std::string>("answer") ? 1 : 0).bytes()};
  });
  const auto task = make(address_in(folder), {{"expect_name", "test"}, {"expect_version", "3"}});
  CHECK(task->symbols() == std::vector<std::string>{"1", "2", "="});
  CHECK_FALSE(task->epoch_size(false));
  CHECK(task->epoch_size(true) == uint64_t{9});
  CHECK_FALSE(task->interacts());
  CHECK(task->problem(5, 3, true).prompt == "2=");
  const envs::Problem problem = task->problem(5, 12, false);
  CHECK(task->reward(problem, "12", true).value == 1.0);
  CHECK(task->reward(problem, "13", true).value == 0.0);

  CHECK(failure([&] {
          make(address_in(folder), {{"expect_version", "4"}});
        }).find("the program's version is \"3\"; option expect_version wants \"4\"") != std::string::npos);
}

TEST_CASE("requests of many threads are answered in any order, each with its own answer", "[external]") {
  constexpr size_t kThreads = 4;
  const TemporaryFolder folder;
  Answers held;  // until every thread has asked; then the last is answered first
  const ExternalServer server(address_in(folder), after_hello([&](const Asked& ask) -> Answers {
                                const double reward = std::stod(ask.get<std::string>("reply")) / 100;
                                held.insert(held.begin(),
                                            Fields(ask.get<uint64_t>("id")).add("reward", reward).bytes());
                                return held.size() < kThreads ? Answers{} : std::exchange(held, {});
                              }));
  const auto task = make(address_in(folder));
  constexpr size_t kRounds = 20;
  std::barrier together(kThreads);
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < kRounds; ++i) {
        const size_t number = kThreads * i + t;
        try {
          right += task->reward({}, std::to_string(number), true).value == static_cast<double>(number) / 100 ? 1 : 0;
        } catch (const std::exception&) {  // counted as not right
        }
        together.arrive_and_wait();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(right == static_cast<int>(kThreads * kRounds));
}

TEST_CASE("a server that answers badly fails the request, and the message says why", "[external]") {
  const TemporaryFolder folder;
  struct Case {
    std::function<std::string(uint64_t id)> answer;
    std::string says;
  };
  const std::vector<Case> cases{
      {[](uint64_t id) { return Fields(id).add("error", "out of\ndisk").bytes(); }, "the server says: out of?disk"},
      {[](uint64_t id) { return Fields(id).add("reward", std::nan("")).bytes(); }, "\"reward\" is nan"},
      {[](uint64_t id) { return Fields(id).add("reward", "one").bytes(); }, "\"reward\" is text"},
      {[](uint64_t id) { return Fields(id).add("reward", 2).bytes(); }, "\"reward\" is 2; it must be from 0 to 1"},
      {[](uint64_t id) { return Fields(id).add("reward", 1).add("x", 1).bytes(); }, "unknown key \"x\""},
      {[](uint64_t) { return std::string("GET / HTTP/1.1"); }, "the server sent"},
      {[](uint64_t) { return std::string("\xc1nonsense"); }, "the server sent not msgpack, or cut short"},
      {[](uint64_t id) { return Fields(id).bytes().substr(0, 3); }, "the server sent not msgpack, or cut short"},
      {[](uint64_t) { return Fields(77).add("reward", 1).bytes(); },
       "the server sent an answer to request 77, which nobody made; this was the last of 3 attempts"},
      {[](uint64_t id) { return Fields(id).add("x", std::string(2 << 20, 'x')).bytes(); },
       "the server sent a message of 2097"},
      {[](uint64_t id) { return Fields(id).add("x", std::string(17 << 20, 'x')).bytes(); },
       "the connection was lost; this was the last of 3 attempts"},
  };
  for (const Case& bad : cases) {
    const ExternalServer server(address_in(folder), after_hello([&](const Asked& ask) -> Answers {
                                  return {bad.answer(ask.get<uint64_t>("id"))};
                                }));
    const auto task = make(address_in(folder));
    const std::string said = score_failure(*task);
    CAPTURE(bad.says);
    CHECK_THAT(said, Catch::StartsWith("ipc://"));
    CHECK_THAT(said, Catch::Contains("\"score\": ") && Catch::Contains(bad.says));
  }
}

TEST_CASE("one message that is none is made up for by asking again", "[external]") {
  const TemporaryFolder folder;
  int asked = 0;
  const ExternalServer server(address_in(folder), after_hello([&](const Asked& ask) -> Answers {
                                if (++asked < 3) return {"\xc1"};
                                return {Fields(ask.get<uint64_t>("id")).add("reward", 1).bytes()};
                              }));
  CHECK(make(address_in(folder))->reward({}, "", true).value == 1.0);
  CHECK(asked == 3);
}

TEST_CASE("a slow server: the request fails in time, its late answer is nobody's, the next is answered", "[external]") {
  const TemporaryFolder folder;
  std::string late;
  const ExternalServer server(address_in(folder), after_hello([&](const Asked& ask) -> Answers {
                                const std::string answer =
                                    Fields(ask.get<uint64_t>("id")).add("reward", late.empty() ? 0 : 1).bytes();
                                if (late.empty()) return late = answer, Answers{};
                                return {late, answer};
                              }));
  const auto task = make(address_in(folder), {{"answer_seconds", "0.5"}});
  CHECK_THAT(score_failure(*task), Catch::Contains("no answer within 0.5 s"));
  CHECK(task->reward({}, "", true).value == 1.0);
}

TEST_CASE("a server that is started anew: what waits is asked again and answered", "[external]") {
  const TemporaryFolder folder;
  auto server =
      std::make_unique<ExternalServer>(address_in(folder), after_hello([](const Asked&) { return Answers{}; }));
  const auto task = make(address_in(folder));
  std::thread restart([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    server.reset();
    server = std::make_unique<ExternalServer>(address_in(folder), [](const Asked& ask) -> Answers {
      return {Fields(ask.get<uint64_t>("id")).add("reward", 1).bytes()};
    });
  });
  CHECK(task->reward({}, "", true).value == 1.0);
  restart.join();
}

TEST_CASE("a server that is gone for good: nothing waits longer than away_seconds", "[external]") {
  const TemporaryFolder folder;
  auto server =
      std::make_unique<ExternalServer>(address_in(folder), after_hello([](const Asked&) { return Answers{}; }));
  const auto task = make(address_in(folder), {{"away_seconds", "0.5"}});
  server.reset();
  CHECK_THAT(failure([&] { task->problem(0, 4, true); }),
             Catch::StartsWith("held-out problem 4: ipc://") && Catch::Contains("no server for 0.5 s: "));
  CHECK_THAT(score_failure(*task), Catch::Contains("no server for 0.5 s: "));
}

TEST_CASE("no server, another kind of server, one that breaks off: refused with the reason", "[external]") {
  const auto refused = [](const std::string& address) {
    return failure([&] { make(address, {{"away_seconds", "0.3"}, {"answer_seconds", "2"}}); });
  };
  const TemporaryFolder folder;
  CHECK_THAT(refused(address_in(folder)),
             Catch::Contains("no server for 0.3 s: nothing answers there; start it first"));
  CHECK_THAT(refused("udp://127.0.0.1:1"), Catch::Contains("must be tcp://HOST:PORT or ipc://PATH"));
  CHECK_THAT(refused("tcp://127.0.0.1"), Catch::Contains("is no address that ZeroMQ takes"));
  const BareServer web("HTTP/1.1 400 Bad Request\r\n\r\n"), mute("", "", true);
  CHECK_THAT(refused(web.address()), Catch::Contains("what listens there does not speak ZeroMQ"));
  CHECK_THAT(refused(mute.address()), Catch::Contains("what listens there does not speak ZeroMQ"));
  const BareServer half(zmtp_router(), std::string("\1\0\0\x64half a message", 18));
  CHECK_THAT(refused(half.address()), Catch::Contains("the connection was lost; this was the last of 3 attempts"));
  CHECK(half.connections() >= ExternalClient::kAttempts);
}

TEST_CASE("texts that the symbols cannot spell are refused with their place", "[external]") {
  const TemporaryFolder folder;
  const ExternalServer server(address_in(folder), after_hello([](const Asked& ask) -> Answers {
                                return {Fields(ask.get<uint64_t>("id")).add("prompt", "1x=").bytes()};
                              }));
  CHECK_THAT(failure([&] { make(address_in(folder))->problem(0, 3, false); }),
             Catch::Contains("training problem 3: ") && Catch::Contains("'x'"));
}

}  // namespace
}  // namespace motley::actors
