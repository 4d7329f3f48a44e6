// OpenSSL keeps the errors of a thread in one queue, and takes what is left in it for an error of the next call,
// whatever connection that is for; so the queue must be empty before a call (SSL_get_error(3)). CAF 0.17 does not empty
// it: a peer that vanished without a farewell took every other TLS connection of the process along. These stand between
// libcaf_openssl and OpenSSL: the dynamic linker takes an executable's functions before a library's.
#include <dlfcn.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

namespace {

template <class Function>
Function* openssl_function(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int SSL_read(SSL* session, void* bytes, int count) {
  static auto* const real = openssl_function<int(SSL*, void*, int)>("SSL_read");
  ERR_clear_error();
  return real(session, bytes, count);
}

int SSL_write(SSL* session, const void* bytes, int count) {
  static auto* const real = openssl_function<int(SSL*, const void*, int)>("SSL_write");
  ERR_clear_error();
  return real(session, bytes, count);
}

int SSL_connect(SSL* session) {
  static auto* const real = openssl_function<int(SSL*)>("SSL_connect");
  ERR_clear_error();
  return real(session);
}

int SSL_accept(SSL* session) {
  static auto* const real = openssl_function<int(SSL*)>("SSL_accept");
  ERR_clear_error();
  return real(session);
}

}  // extern "C"
