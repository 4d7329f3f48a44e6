// The X.509 certificate of a key file, through OpenSSL.
#pragma once

#include <string>

namespace motley::actors {

struct Certificate {
  std::string certificate, private_key;  // PEM
};

/// A new EC P-256 key and a certificate for it that is its own authority. Throws KeyError.
Certificate make_certificate();

/// What is wrong with the pair, with neither's content; empty: a certificate of this key, its own authority, valid now.
std::string certificate_fault(const Certificate& pair);

}  // namespace motley::actors
