#include "tests/fleet/bad_network.h"

#include <sstream>

namespace motley::fleet {
namespace {

constexpr Seconds kAnswerLimit{10};

std::string joined(const std::vector<uint16_t>& ports) {
  std::string text;
  for (const uint16_t port : ports) text += (text.empty() ? "" : ",") + std::to_string(port);
  return text;
}

}  // namespace

BadNetwork::BadNetwork(const TemporaryFolder& folder, const std::string& name, const std::string& address,
                       const std::vector<uint16_t>& ports, const std::string& to, const std::vector<uint16_t>& to_ports,
                       const Machine* machine)
    : program_(folder, name, {MOTLEY_RELAY, address, joined(ports), to, joined(to_ports)}, machine) {
  std::istringstream line(next_line());
  std::string word;
  line >> word;
  for (uint16_t port = 0; line >> port;) ports_.push_back(port);
}

std::string BadNetwork::next_line() {
  ++lines_;
  if (!wait_until(kAnswerLimit, [&] { return occurrences(program_.out(), "\n") >= lines_ || !program_.running(); }))
    throw std::runtime_error("the relay does not answer");
  std::istringstream out(program_.out());
  std::string line;
  for (int i = 0; i < lines_; ++i)
    if (!std::getline(out, line)) throw std::runtime_error("the relay has ended: " + program_.log());
  return line;
}

std::string BadNetwork::command(const std::string& line) {
  program_.write_line(line);
  std::string answer = next_line();
  if (answer.starts_with("error")) throw std::runtime_error("relay: " + line + ": " + answer);
  return answer;
}

}  // namespace motley::fleet
