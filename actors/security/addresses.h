// Where a coordinator listens, and where a sampler finds it.
#pragma once

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace motley::actors {

/// An address that is none, that needs a key, or that cannot be listened on: which, and why.
class AddressError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Address {
  std::string host;  // an IP address without brackets, or, to connect to, a name
  uint16_t port = 0;
};

/// The ports that follow the one named: session data, weights, versions.
inline constexpr uint16_t kPortsBeside = 3;

/// `HOST:PORT`, `[IPV6]:PORT` or `:PORT`, where loopback is meant; HOST is an IP address of this machine or localhost,
/// and port 0 is any that is free. Without a key (`secured` false) only loopback addresses: AddressError else, and for
/// what is no address.
Address parse_listen_address(std::string_view text, bool secured);

/// `HOST:PORT` or `[IPV6]:PORT`, with HOST also a name and the port above 0. Throws AddressError.
Address parse_join_address(std::string_view text);

/// 127.0.0.0/8 and ::1, also as ::ffff:127.x; a name never is.
bool is_loopback(const std::string& host);

/// With brackets where they are needed, for messages.
std::string address_text(const Address& address);
/// As ZeroMQ writes it: `tcp://HOST:PORT`, with `*` for port 0.
std::string zmq_endpoint(const Address& address);

/// Whether a TCP connection to the address comes about within `limit`; empty if it does, else why not. To be asked
/// before CAF is told to connect: CAF's own connect(2) blocks all its connecting for as long as the system tries
/// (minutes where a firewall is silent), and says no reason. A name's look-up is not under the limit. Blocks.
std::string why_unreachable(const Address& address, std::chrono::milliseconds limit);

}  // namespace motley::actors
