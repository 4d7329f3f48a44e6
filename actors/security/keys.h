// The fleet's trust root: one file that every process of the fleet holds. It has a CURVE key pair for ZeroMQ and a
// self-signed certificate with its private key for TLS; whoever holds the file is in the fleet.
#pragma once

#include <stdexcept>
#include <string>

namespace motley::actors {

/// A key file that cannot be made, read or used: `FILE:LINE: why, and what to do`. Never holds a secret.
class KeyError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What the file holds. Only curve_public and certificate may ever be shown.
struct Keys {
  std::string curve_public, curve_secret;        // Z85 (rfc.zeromq.org/spec/32), 40 characters each
  std::string certificate, certificate_private;  // PEM: EC P-256, self-signed; PKCS #8
};

/// How long a certificate is valid, from a day before it is made, since clocks of machines differ.
inline constexpr int kKeyDays = 3650;

/// New random keys. Throws KeyError where the system's libraries cannot (a ZeroMQ without CURVE).
Keys make_keys();

/// Writes a file that only its owner may read. Throws KeyError: it is there already, or cannot be written.
void write_keys(const std::string& file, const Keys& keys);

/// Throws KeyError: no regular file, readable by others than its owner, not of this form, pairs that do not fit, or a
/// certificate that is not valid now.
Keys read_keys(const std::string& file);

}  // namespace motley::actors
