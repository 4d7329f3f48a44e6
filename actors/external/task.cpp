// external: problems, steps and rewards come from a program of the user's (docs/external-environments.md).
#include <fmt/format.h>

#include <cmath>

#include "actors/external/interaction.h"
#include "envs/options.h"
#include "envs/utf8.h"

namespace motley::actors {
namespace {

using envs::Option;

const std::vector<Option>& options() {
  static const std::vector<Option> table{
      {.name = "address",
       .help = "where the program listens: tcp://HOST:PORT or ipc://PATH",
       .kind = Option::Kind::text},
      {.name = "expect_name", .help = "what the program must call itself; empty: any name", .kind = Option::Kind::text},
      {.name = "expect_version",
       .help = "the version that the program must say it has; empty: any",
       .kind = Option::Kind::text},
      {.name = "answer_seconds",
       .help = "within which a request is answered, else its episode fails",
       .kind = Option::Kind::number,
       .default_value = "20",
       .minimum = 0.05,
       .maximum = 3600},
      {.name = "away_seconds",
       .help = "for which there may be no program, at the start and after it was lost",
       .kind = Option::Kind::number,
       .default_value = "10",
       .minimum = 0.05,
       .maximum = 3600},
      {.name = "turns", .help = "most replies of an episode", .default_value = "16", .minimum = 1, .maximum = 10000},
      {.name = "tokens",
       .help = "of a whole episode, read and drawn; 0: as many as the model has positions",
       .default_value = "0",
       .minimum = 0,
       .maximum = 1e9},
  };
  return table;
}

/// The client, or a TaskError: a server that is not there at the start is the user's to mend.
std::shared_ptr<ExternalClient> open(const envs::OptionValues& values) {
  const std::string& address = values.text("address");
  if (!address.starts_with("tcp://") && !address.starts_with("ipc://"))
    throw envs::TaskError(fmt::format("option address is \"{}\"; it must be tcp://HOST:PORT or ipc://PATH", address));
  using Seconds = std::chrono::duration<double>;
  const ExternalLimits limits{Seconds(values.number("answer_seconds")), Seconds(values.number("away_seconds"))};
  try {
    return std::make_shared<ExternalClient>(address, limits);
  } catch (const ExternalError& error) {
    throw envs::TaskError(error.what());
  }
}

class ExternalTask final : public envs::Task {
 public:
  explicit ExternalTask(const envs::OptionValues& values)
      : client_(open(values)), limits_{values.integer("turns"), values.integer("tokens")} {
    try {
      info_ = std::make_shared<const ExternalInfo>(read_hello(client_->ask(ExternalRequest("hello"))));
    } catch (const ExternalError& error) {
      throw envs::TaskError(error.what());
    }
    expect("expect_name", values.text("expect_name"), "name", info_->name);
    expect("expect_version", values.text("expect_version"), "version", info_->version);
    try {
      own_symbols_ = envs::Tokenizer(info_->symbols, info_->bytes);
    } catch (const std::invalid_argument& error) {
      throw envs::TaskError(fmt::format("{}, \"hello\": \"symbols\": {}", client_->address(), error.what()));
    }
  }

  std::vector<std::string> symbols() const override { return info_->symbols; }
  bool any_bytes() const override { return info_->bytes; }
  std::optional<uint64_t> epoch_size(bool held_out) const override {
    return held_out ? info_->held_out : info_->training;
  }
  bool has_demonstrations() const override { return info_->demonstrations; }

  envs::Problem problem(uint64_t seed, uint64_t index, bool held_out) const override {
    const std::string place = fmt::format("{} problem {}", held_out ? "held-out" : "training", index);
    try {
      ExternalRequest request("problem");
      request.number("seed", seed).number("index", index).boolean("held_out", held_out);
      ExternalAnswer answer = client_->ask(request);
      envs::Problem problem;
      problem.prompt = answer.text("prompt", kMostTextBytes);
      problem.answer = answer.optional_text("answer", kMostTextBytes).value_or("");
      problem.demonstration = answer.optional_text("demonstration", kMostTextBytes).value_or("");
      answer.done();
      if (problem.prompt.empty()) answer.refuse("\"prompt\" is empty");
      if (info_->demonstrations && !info_->interacts && problem.demonstration.empty())
        answer.refuse("\"demonstration\" is missing, which \"hello\" has promised");
      own_symbols_.encode(problem.prompt);
      own_symbols_.encode(problem.demonstration);
      return problem;
    } catch (const ExternalError& error) {
      throw envs::TaskError(fmt::format("{}: {}", place, error.what()));
    } catch (const std::invalid_argument& error) {
      throw envs::TaskError(fmt::format("{}, \"problem\": {}: {}", client_->address(), place, error.what()));
    }
  }

  envs::Reward reward(const envs::Problem& problem, std::string_view reply, bool ended) const override {
    ExternalAnswer answer = client_->ask(about("score", problem).text("reply", reply).boolean("ended", ended));
    envs::Reward reward = read_reward(answer, *info_);
    answer.done();
    return reward;
  }

  bool interacts() const override { return info_->interacts; }
  /// A reply and, where a limit ends the episode, its score.
  std::chrono::seconds longest_call() const override {
    constexpr std::chrono::seconds kSpare{10};
    return 2 * std::chrono::ceil<std::chrono::seconds>(client_->limits().answer) + kSpare;
  }
  std::unique_ptr<envs::Interaction> interact(const envs::Problem& problem, const envs::Tokenizer& tokenizer,
                                              const envs::InteractionLimits& limits) const override {
    return std::make_unique<ExternalInteraction>(client_, info_, problem, tokenizer, limits, limits_);
  }
  /// The replies that the server demonstrates, one a turn, until the episode ends.
  envs::InteractionExample demonstrate(const envs::Problem& problem, const envs::Tokenizer& tokenizer,
                                       const envs::InteractionLimits& limits) const override {
    try {
      ExternalInteraction episode(client_, info_, problem, tokenizer, limits, limits_);
      for (auto most = episode.begin(); most;) {
        const auto& text = episode.demonstration();
        if (!text) throw ExternalError(client_->address() + ": a demonstration that stops before its episode ends");
        std::vector<int32_t> reply = tokenizer.encode(*text);
        reply.push_back(tokenizer.eos());
        if (static_cast<int64_t>(reply.size()) > *most)
          throw ExternalError(fmt::format("{}: a demonstrated reply of {} tokens, and the episode has room for {}",
                                          client_->address(), reply.size(), *most));
        most = episode.replied(std::vector<int32_t>(episode.context()), reply);
      }
      const envs::InteractionOutcome outcome = episode.outcome();
      if (!outcome.failure.empty()) throw ExternalError(outcome.failure);
      if (outcome.truncated)
        throw ExternalError(fmt::format("{}: a demonstration ends by {}", client_->address(), outcome.end));
      return {episode.context(), episode.drawn()};
    } catch (const std::runtime_error& error) {
      throw envs::TaskError(error.what());
    } catch (const std::invalid_argument& error) {
      throw envs::TaskError(fmt::format("{}: a demonstration: {}", client_->address(), error.what()));
    }
  }

 private:
  void expect(const char* option, const std::string& wanted, const char* what, const std::string& found) const {
    if (wanted.empty() || wanted == found) return;
    throw envs::TaskError(fmt::format("{}: the program's {} is \"{}\"; option {} wants \"{}\"", client_->address(),
                                      what, envs::printable(found, 100), option, wanted));
  }

  std::shared_ptr<ExternalClient> client_;
  std::shared_ptr<const ExternalInfo> info_;
  ExternalEpisodeLimits limits_;
  envs::Tokenizer own_symbols_;
};

[[maybe_unused]] const bool registered =
    envs::register_task({"external", "problems, steps and rewards from a program of your own, over ZeroMQ", options(),
                         [](const envs::Options& given) -> std::unique_ptr<envs::Task> {
                           return std::make_unique<ExternalTask>(envs::OptionValues("external", options(), given));
                         }});

}  // namespace
}  // namespace motley::actors
