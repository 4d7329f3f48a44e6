#include "envs/reward_program.h"

#include <sys/wait.h>

#include <array>
#include <charconv>

#include "envs/child_process.h"
#include "envs/utf8.h"

namespace motley::envs {
namespace {

[[noreturn]] void fail(const std::string& what) { throw RewardProgramError("the reward program " + what); }

/// timeout(1) stands between, so that nothing runs for ever where motley itself was killed.
std::vector<std::string> words_of(const std::string& command, double seconds) {
  constexpr double kGrace = 1.0;
  return {"timeout", "--signal=KILL", std::to_string(seconds + kGrace), "sh", "-c", command};
}

std::string seconds_text(double seconds) {
  std::array<char, 32> text;
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), seconds).ptr};
}

}  // namespace

double RewardProgram::score(std::string_view json) const try {
  constexpr size_t kMostOutput = 4096;  // bytes
  const auto limit = std::chrono::duration_cast<ChildProcess::Clock::duration>(std::chrono::duration<double>(seconds_));
  const auto deadline = ChildProcess::Clock::now() + limit;
  ChildProcess child({.words = words_of(command_, seconds_), .most_output = kMostOutput});
  const bool in_time = child.talk(json, deadline);
  const int status = child.end();
  const std::string line = child.last_error().empty() ? "" : ": " + child.last_error();
  if (!in_time) fail("took longer than " + seconds_text(seconds_) + " s and was killed" + line);
  if (child.too_much()) fail("printed more than " + std::to_string(kMostOutput) + " bytes");
  if (WIFSIGNALED(status) || WEXITSTATUS(status) != 0) fail(child.ending());
  const std::string_view text = trimmed(child.output());
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  constexpr size_t kMostShown = 100;
  if (text.empty()) fail("printed nothing; it must print a number from 0 to 1" + line);
  if (error != std::errc() || end != text.data() + text.size() || !(number >= 0 && number <= 1))
    fail("printed \"" + printable(text, kMostShown) + "\"; it must print a number from 0 to 1" + line);
  return number;
} catch (const ChildError& error) {
  fail(error.what());
}

}  // namespace motley::envs
