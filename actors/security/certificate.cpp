#include "actors/security/certificate.h"

#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string_view>

#include "actors/security/keys.h"

namespace motley::actors {
namespace {

template <auto Free>
struct Freed {
  template <typename T>
  void operator()(T* pointer) const {
    Free(pointer);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;
using X509Ptr = std::unique_ptr<X509, Freed<X509_free>>;
using Memory = std::unique_ptr<BIO, Freed<BIO_free>>;
using Extension = std::unique_ptr<X509_EXTENSION, Freed<X509_EXTENSION_free>>;

void require(bool done, const char* what) {
  if (done) return;
  const unsigned long code = ERR_get_error();
  const char* reason = ERR_reason_error_string(code);
  ERR_clear_error();
  throw KeyError(std::string("OpenSSL cannot ") + what + (reason ? ": " + std::string(reason) : ""));
}

std::string text_of(BIO* memory) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(memory, &data);
  return {data, static_cast<size_t>(size)};
}

Memory memory_of(std::string_view text) { return Memory(BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))); }

void add_extension(X509* certificate, int number, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, certificate, certificate, nullptr, nullptr, 0);
  const Extension extension(X509V3_EXT_conf_nid(nullptr, &context, number, value));
  require(extension && X509_add_ext(certificate, extension.get(), -1) == 1, "add an extension to a certificate");
}

/// 63 random bits: RFC 5280, 4.1.2.2 wants a positive number.
void set_serial(X509* certificate) {
  uint64_t serial = 0;
  require(RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof serial) == 1, "draw random bytes");
  require(ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate), serial >> 1 | 1) == 1, "number a certificate");
}

/// Asks for no passphrase on a terminal, as OpenSSL would by itself.
int no_passphrase(char*, int, int, void*) { return 0; }

}  // namespace

Certificate make_certificate() {
  const Key key(EVP_EC_gen("P-256"));
  require(key != nullptr, "make an EC P-256 key");
  const X509Ptr certificate(X509_new());
  require(certificate && X509_set_version(certificate.get(), X509_VERSION_3) == 1, "make a certificate");
  set_serial(certificate.get());
  const bool dated = X509_time_adj_ex(X509_getm_notBefore(certificate.get()), -1, 0, nullptr) &&
                     X509_time_adj_ex(X509_getm_notAfter(certificate.get()), kKeyDays, 0, nullptr);
  require(dated, "date a certificate");
  X509_NAME* name = X509_get_subject_name(certificate.get());
  const auto* words = reinterpret_cast<const unsigned char*>("motley fleet");
  require(X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, words, -1, -1, 0) == 1 &&
              X509_set_issuer_name(certificate.get(), name) == 1 && X509_set_pubkey(certificate.get(), key.get()) == 1,
          "fill in a certificate");
  add_extension(certificate.get(), NID_basic_constraints, "critical,CA:TRUE,pathlen:0");
  add_extension(certificate.get(), NID_key_usage, "critical,digitalSignature,keyCertSign");
  add_extension(certificate.get(), NID_subject_key_identifier, "hash");
  require(X509_sign(certificate.get(), key.get(), EVP_sha256()) > 0, "sign a certificate");

  const Memory public_text(BIO_new(BIO_s_mem())), private_text(BIO_new(BIO_s_mem()));
  require(public_text && private_text && PEM_write_bio_X509(public_text.get(), certificate.get()) == 1 &&
              PEM_write_bio_PKCS8PrivateKey(private_text.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) == 1,
          "write PEM");
  return {text_of(public_text.get()), text_of(private_text.get())};
}

std::string certificate_fault(const Certificate& pair) {
  const Memory public_text = memory_of(pair.certificate), private_text = memory_of(pair.private_key);
  const X509Ptr certificate(PEM_read_bio_X509(public_text.get(), nullptr, no_passphrase, nullptr));
  const Key key(PEM_read_bio_PrivateKey(private_text.get(), nullptr, no_passphrase, nullptr));
  std::string fault;
  if (!certificate) {
    fault = "this is no certificate";
  } else if (!key) {
    fault = "its private key cannot be read";
  } else if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    fault = "the private key is another certificate's";
  } else if (X509_verify(certificate.get(), key.get()) != 1 || X509_check_ca(certificate.get()) != 1) {
    fault = "the certificate is not its own authority";
  } else if (X509_cmp_current_time(X509_get0_notBefore(certificate.get())) > 0) {
    fault = "the certificate is not valid yet: one of the machines' clocks is wrong";
  } else if (X509_cmp_current_time(X509_get0_notAfter(certificate.get())) < 0) {
    fault = "the certificate has expired: make a new file with motley keygen, for all of the fleet";
  }
  ERR_clear_error();
  return fault;
}

}  // namespace motley::actors
