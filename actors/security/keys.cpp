#include "actors/security/keys.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <string_view>

#include "actors/security/certificate.h"

namespace motley::actors {
namespace {

constexpr std::string_view kHeader = "motley fleet key";
constexpr std::string_view kVersion = "1";
constexpr size_t kMostBytes = 65536, kCurveCharacters = 40;

[[noreturn]] void refuse(const std::string& file, const std::string& why) { throw KeyError(file + ": " + why); }
[[noreturn]] void refuse(const std::string& file, int line, const std::string& why) {
  refuse(file + ":" + std::to_string(line), why);
}
std::string system_words() { return std::strerror(errno); }

struct Descriptor {
  explicit Descriptor(int fd) : number(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
  int number;
};

/// The content of a file that only its owner may read.
std::string private_bytes(const std::string& file) {
  // Not blocking: a pipe of this name would wait for a writer.
  const Descriptor in(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat about {};
  if (in.number < 0 || ::fstat(in.number, &about) != 0) {
    refuse(file, "the key file cannot be read: " + system_words() + "; motley keygen makes one");
  }
  if (!S_ISREG(about.st_mode)) refuse(file, "a key file is a regular file");
  if ((about.st_mode & 077) != 0) {
    refuse(file, "others may read or change this key file; keep it for its owner alone: chmod 600 " + file);
  }
  if (about.st_size > static_cast<off_t>(kMostBytes)) refuse(file, "too long for a key file");
  std::string bytes(kMostBytes, '\0');
  size_t size = 0;
  for (ssize_t got = 0; size < bytes.size(); size += static_cast<size_t>(got)) {
    got = ::read(in.number, bytes.data() + size, bytes.size() - size);
    if (got < 0) refuse(file, "the key file cannot be read: " + system_words());
    if (got == 0) break;
  }
  bytes.resize(size);
  return bytes;
}

/// The lines of a key file, one after the other; what is not as expected is refused with its line.
class Lines {
 public:
  Lines(const std::string& file, const std::string& bytes) : file_(file), in_(bytes) {}

  int number() const { return number_; }

  /// The text after `name` and a space.
  std::string value(std::string_view name) {
    const std::string line = next();
    const std::string start = std::string(name) + " ";
    if (!line.starts_with(start)) refuse(file_, number_, "expected '" + start + "...'");
    return line.substr(start.size());
  }

  /// From -----BEGIN label----- to its end.
  std::string pem(std::string_view label) {
    const std::string begin = "-----BEGIN " + std::string(label) + "-----",
                      end = "-----END " + std::string(label) + "-----";
    std::string line = next();
    if (line != begin) refuse(file_, number_, "expected '" + begin + "'");
    std::string text = line + "\n";
    do {
      text += (line = next()) + "\n";
    } while (line != end);
    return text;
  }

  void require_end() {
    std::string line;
    if (std::getline(in_, line)) refuse(file_, number_ + 1, "nothing may follow the private key");
  }

 private:
  std::string next() {
    std::string line;
    ++number_;
    if (!std::getline(in_, line)) refuse(file_, number_, "the file ends too early: it was cut, or copied in part");
    return line;
  }

  const std::string& file_;
  std::istringstream in_;
  int number_ = 0;
};

void check_version(Lines& lines, const std::string& file) {
  std::string version;
  try {
    version = lines.value(kHeader);
  } catch (const KeyError&) {
    refuse(file, 1, "this is no key file; motley keygen makes one");
  }
  if (version != kVersion) {
    refuse(file, 1,
           "a key file of version '" + version.substr(0, 20) + "', and this binary reads " + std::string(kVersion));
  }
}

/// Z85 text of 32 bytes: checked before zmq_curve_public reads 40 characters from it.
void check_curve(const std::string& text, const std::string& file, int line) {
  std::array<uint8_t, 32> bytes{};
  if (text.size() != kCurveCharacters || text.find('\0') != std::string::npos ||
      zmq_z85_decode(bytes.data(), text.c_str()) == nullptr) {
    refuse(file, line, "a CURVE key has 40 characters of Z85");
  }
}

std::string public_of(const std::string& secret) {
  std::array<char, kCurveCharacters + 1> text{};
  if (zmq_curve_public(text.data(), secret.c_str()) != 0) throw KeyError("this machine's ZeroMQ has no CURVE");
  return text.data();
}

}  // namespace

Keys make_keys() {
  std::array<char, kCurveCharacters + 1> curve_public{}, curve_secret{};
  if (zmq_curve_keypair(curve_public.data(), curve_secret.data()) != 0) {
    throw KeyError("this machine's ZeroMQ has no CURVE");
  }
  const Certificate made = make_certificate();
  return {curve_public.data(), curve_secret.data(), made.certificate, made.private_key};
}

void write_keys(const std::string& file, const Keys& keys) {
  const Descriptor out(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (out.number < 0) {
    refuse(file, errno == EEXIST ? "there is a file of this name, which is not overwritten"
                                 : "the key file cannot be made: " + system_words());
  }
  const std::string text = std::string(kHeader) + " " + std::string(kVersion) + "\ncurve-public " + keys.curve_public +
                           "\ncurve-secret " + keys.curve_secret + "\n" + keys.certificate + keys.certificate_private;
  // The mode again: a default access list of the folder may have widened it.
  bool done = ::fchmod(out.number, 0600) == 0;
  for (size_t at = 0; done && at < text.size();) {
    const ssize_t put = ::write(out.number, text.data() + at, text.size() - at);
    done = put > 0;
    if (done) at += static_cast<size_t>(put);
  }
  done = done && ::fsync(out.number) == 0;
  if (done) return;
  const std::string why = system_words();
  ::unlink(file.c_str());
  refuse(file, "the key file cannot be written: " + why);
}

Keys read_keys(const std::string& file) {
  Lines lines(file, private_bytes(file));
  check_version(lines, file);
  Keys keys;
  keys.curve_public = lines.value("curve-public");
  check_curve(keys.curve_public, file, lines.number());
  keys.curve_secret = lines.value("curve-secret");
  check_curve(keys.curve_secret, file, lines.number());
  if (public_of(keys.curve_secret) != keys.curve_public) {
    refuse(file, lines.number(), "the secret CURVE key is not that of the public one");
  }
  const int certificate = lines.number() + 1;
  keys.certificate = lines.pem("CERTIFICATE");
  keys.certificate_private = lines.pem("PRIVATE KEY");
  lines.require_end();
  const std::string fault = certificate_fault({keys.certificate, keys.certificate_private});
  if (!fault.empty()) refuse(file, certificate, fault);
  return keys;
}

}  // namespace motley::actors
