// fleet_relay LISTEN_ADDRESS PORT,PORT,... TO_ADDRESS PORT,PORT,...
// Commands on stdin: relay.h. The first line on stdout: "listening" and the ports.
#include <charconv>
#include <cstdio>
#include <exception>

#include "tests/fleet/relay/relay.h"

namespace {

std::vector<uint16_t> parse_ports(std::string_view text) {
  std::vector<uint16_t> ports;
  while (true) {
    uint16_t port = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
    if (error != std::errc()) throw std::runtime_error("ports are numbers from 0 to 65535 with commas in between");
    ports.push_back(port);
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    if (text.empty()) return ports;
    if (text.front() != ',') throw std::runtime_error("ports are numbers from 0 to 65535 with commas in between");
    text.remove_prefix(1);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 5) throw std::runtime_error("usage: fleet_relay LISTEN_ADDRESS PORT,... TO_ADDRESS PORT,...");
    motley::fleet::Relay relay(
        {.listen = argv[1], .to = argv[3], .ports = parse_ports(argv[2]), .to_ports = parse_ports(argv[4])});
    std::string line = "listening";
    for (const uint16_t port : relay.ports()) line += " " + std::to_string(port);
    std::puts(line.c_str());
    std::fflush(stdout);
    relay.run();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fleet_relay: error: %s\n", error.what());
    return 2;
  }
}
