#include "actors/evaluated_episodes.h"

#include <algorithm>
#include <utility>

#include "actors/policy/episode.h"
#include "actors/task_threads.h"
#include "envs/episode.h"
#include "kernels/parallel.h"

namespace motley::actors {
namespace {

constexpr size_t kMostInteractions = 64;  // at a time: each may hold a sandbox

struct Episode {
  std::vector<int32_t> context;  // all that was read and drawn before the present turn
  std::vector<int32_t> drawn;    // in the present turn
  std::vector<envs::Reply> replies;
  std::unique_ptr<InteractionDriver> driver;  // of an interaction
  EvaluatedEpisode result;
};

class Player {
 public:
  Player(const envs::TaskMix& tasks, const std::vector<envs::TaskMix::Pick>& problems, Engine& engine,
         int64_t max_positions, const envs::Tokenizer& tokenizer, const EvaluationRequest& request)
      : tasks_(tasks),
        problems_(problems),
        engine_(engine),
        max_positions_(max_positions),
        tokenizer_(tokenizer),
        request_(request),
        episodes_(problems.size() * static_cast<size_t>(request.samples)),
        threads_(request.threads) {}
  std::vector<EvaluatedEpisode> run(const std::function<bool()>& stop);

 private:
  const envs::TaskMix::Pick& problem_of(size_t i) const { return problems_[i / static_cast<size_t>(request_.samples)]; }
  const envs::Task& task_of(size_t i) const { return *tasks_.entries()[problem_of(i).entry].task; }
  void begin_interactions();
  /// Appends what is read and asks for a reply of at most `most` tokens.
  void ask(size_t i, const std::vector<int32_t>& read, int64_t most);
  void collect(const StepOutput& output);
  void answered(TaskThreads::Answer& answer);
  void fail(size_t i, const std::string& why);
  /// Of an episode of questions: its next one, or its score.
  void next_question(size_t i);

  const envs::TaskMix& tasks_;
  const std::vector<envs::TaskMix::Pick>& problems_;
  Engine& engine_;
  int64_t max_positions_;
  const envs::Tokenizer& tokenizer_;
  const EvaluationRequest& request_;
  std::vector<Episode> episodes_;
  size_t next_ = 0;          // the first episode that may be an interaction to begin
  size_t interactions_ = 0;  // that have begun and not ended
  TaskThreads threads_;      // last: their calls use the episodes
};

/// The reward of a finished episode of questions.
EpisodeStep scored(const envs::TaskMix::Entry& entry, const envs::Problem& problem,
                   const std::vector<envs::Reply>& replies) {
  EpisodeStep over;
  over.outcome.end = replies.back().ended ? "ended" : "token_limit";
  over.outcome.truncated = !replies.back().ended;
  try {
    over.outcome.reward = envs::episode_reward(*entry.task, problem, replies);
    over.outcome.format_errors = over.outcome.reward.format_error ? 1 : 0;
    const std::string wrong = envs::wrong_reward(over.outcome.reward, replies.size());
    if (!wrong.empty()) over.outcome.failure = "the reward of task " + entry.name + " is " + wrong;
  } catch (const std::exception& error) {
    over.outcome.failure = "the reward of task " + entry.name + " failed: " + error.what();
  } catch (...) {
    over.outcome.failure = "the reward of task " + entry.name + " failed";
  }
  return over;
}

void Player::begin_interactions() {
  for (; next_ < episodes_.size() && interactions_ < kMostInteractions; ++next_) {
    if (!task_of(next_).interacts()) continue;
    Episode& episode = episodes_[next_];
    const auto pick = std::make_shared<const envs::TaskMix::Pick>(problem_of(next_));
    episode.driver = std::make_unique<InteractionDriver>(
        tasks_, pick, tokenizer_,
        envs::InteractionLimits{.tokens = max_positions_, .reply_tokens = request_.max_tokens});
    ++interactions_;
    threads_.add(next_, [driver = episode.driver.get()] { return driver->begin(); });
  }
}

void Player::ask(size_t i, const std::vector<int32_t>& read, int64_t most) {
  Episode& episode = episodes_[i];
  episode.context.insert(episode.context.end(), read.begin(), read.end());
  GenerateRequest generate;
  generate.id = i;
  generate.tokens = episode.context;
  generate.max_new_tokens = most;
  generate.stop_tokens = {tokenizer_.eos()};
  generate.rule.temperature = request_.temperature;
  generate.rule.top_p = request_.top_p;
  generate.key = {.seed = request_.seed,
                  .purpose = kernels::Purpose::eval,
                  .session = random_session(problem_of(i), i % static_cast<size_t>(request_.samples)),
                  .attempt = 0};
  generate.vocabulary = tokenizer_.size();
  try {
    engine_.submit(std::move(generate));
  } catch (const std::invalid_argument& error) {  // a prompt that the model has no room for
    fail(i, error.what());
  }
}

void Player::fail(size_t i, const std::string& why) {
  Episode& episode = episodes_[i];
  episode.result.outcome.end = "failed";
  episode.result.outcome.failure = why;
  if (!episode.driver) return;
  --interactions_;
  episode.driver.reset();
}

void Player::collect(const StepOutput& output) {
  Episode& episode = episodes_[output.id];
  episode.drawn.insert(episode.drawn.end(), output.records.tokens.begin(), output.records.tokens.end());
  if (output.finish == FinishReason::none) return;
  if (output.finish == FinishReason::failed) {
    fail(output.id, output.error.empty() ? "the engine gave no reason" : output.error);
    return;
  }
  ++episode.result.replies;
  std::vector<int32_t> drawn = std::exchange(episode.drawn, {});
  if (episode.driver) {
    threads_.add(output.id, [driver = episode.driver.get(), prompt = episode.context, drawn] {
      return driver->replied(prompt, drawn);
    });
  } else {
    const bool ended = output.finish == FinishReason::stop;
    episode.replies.push_back({tokenizer_.decode(std::span(drawn).first(drawn.size() - (ended ? 1 : 0))), ended});
  }
  episode.context.insert(episode.context.end(), drawn.begin(), drawn.end());
  if (!episode.driver) next_question(output.id);
}

void Player::next_question(size_t i) {
  Episode& episode = episodes_[i];
  const envs::TaskMix::Pick& pick = problem_of(i);
  if (const envs::Problem* question = envs::next_question(pick.problem, episode.replies)) {
    const std::vector<int32_t> read = tokenizer_.encode(question->prompt);
    if (room_for_turn(episode.context.size(), read.size(), max_positions_)) {
      ask(i, read, request_.max_tokens);
      return;
    }
  }
  threads_.add(i, [&entry = tasks_.entries()[pick.entry], &pick, &episode] {
    return scored(entry, pick.problem, episode.replies);
  });
}

void Player::answered(TaskThreads::Answer& answer) {
  Episode& episode = episodes_[answer.episode];
  if (answer.step.reply_tokens) {
    ask(answer.episode, answer.step.read, *answer.step.reply_tokens);
    return;
  }
  episode.result.outcome = std::move(answer.step.outcome);
  if (!episode.driver) return;
  --interactions_;
  episode.driver.reset();
}

std::vector<EvaluatedEpisode> Player::run(const std::function<bool()>& stop) {
  for (size_t i = 0; i < episodes_.size(); ++i)
    if (!task_of(i).interacts()) ask(i, tokenizer_.encode(problem_of(i).problem.prompt), request_.max_tokens);
  kernels::ComputeClient client(kernels::ComputeSide::sampler);
  const auto step = [&] {
    const kernels::ComputeLease lease(client);
    return engine_.step();
  };
  for (;;) {
    if (stop && stop()) return {};
    begin_interactions();
    const bool drawing = !engine_.idle();
    if (!drawing && threads_.open() == 0) break;
    if (drawing)
      for (const StepOutput& output : step()) collect(output);
    for (TaskThreads::Answer& answer : threads_.take(!drawing)) answered(answer);
  }
  std::vector<EvaluatedEpisode> results;
  for (Episode& episode : episodes_) {
    episode.result.tokens = static_cast<int64_t>(episode.context.size());
    results.push_back(std::move(episode.result));
  }
  return results;
}

}  // namespace

std::vector<EvaluatedEpisode> play_episodes(std::shared_ptr<const SamplerWeights> weights, const envs::TaskMix& tasks,
                                            const std::vector<envs::TaskMix::Pick>& problems,
                                            const envs::Tokenizer& tokenizer, const EvaluationRequest& request,
                                            int64_t slots, const std::function<bool()>& stop) {
  EngineLimits limits;
  const auto count = static_cast<int64_t>(problems.size()) * request.samples;
  limits.max_sequences = std::min(slots, std::max<int64_t>(1, count));
  const int64_t max_positions = weights->config().max_positions;
  Engine engine(std::move(weights), limits);
  return Player(tasks, problems, engine, max_positions, tokenizer, request).run(stop);
}

}  // namespace motley::actors
