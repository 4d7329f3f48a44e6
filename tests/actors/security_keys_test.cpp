// Key files: what is written is read, for its owner alone, and what is wrong with one is said with its line.
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <regex>

#include "actors/security/keys.h"
#include "tests/temporary_folder.h"

namespace motley::actors {
namespace {

using Catch::Contains;

std::string refusal(const std::filesystem::path& file) {
  try {
    read_keys(file);
  } catch (const KeyError& error) {
    return error.what();
  }
  return "";
}

/// A key file in the folder, and its text.
struct Written {
  explicit Written(const TemporaryFolder& folder) : file(folder / "fleet.key") {
    write_keys(file, make_keys());
    text = folder.read("fleet.key");
  }
  std::filesystem::path file;
  std::string text;
};

std::string replaced(const std::string& text, const std::string& pattern, const std::string& by) {
  std::smatch found;  // a key may hold what std::regex_replace reads as a reference
  REQUIRE(std::regex_search(text, found, std::regex(pattern)));
  return found.prefix().str() + by + found.suffix().str();
}

/// The refusal of a file of this content.
std::string refusal_of(const TemporaryFolder& folder, const std::string& content) {
  const auto file = folder.write("changed.key", content);
  std::filesystem::permissions(file, std::filesystem::perms(0600));
  return refusal(file);
}

}  // namespace

TEST_CASE("a key file is read as it was written, and two are never alike") {
  const TemporaryFolder folder;
  const Keys made = make_keys(), other = make_keys();
  write_keys(folder / "fleet.key", made);
  const Keys read = read_keys(folder / "fleet.key");
  CHECK(read.curve_public == made.curve_public);
  CHECK(read.curve_secret == made.curve_secret);
  CHECK(read.certificate == made.certificate);
  CHECK(read.certificate_private == made.certificate_private);
  CHECK(made.curve_secret != other.curve_secret);
  CHECK(made.certificate_private != other.certificate_private);
  CHECK(made.certificate != other.certificate);
}

TEST_CASE("a key file is its owner's alone, and never written over") {
  const TemporaryFolder folder;
  const mode_t before = ::umask(0);
  const Written key(folder);
  ::umask(before);
  struct stat about {};
  REQUIRE(::stat(key.file.c_str(), &about) == 0);
  CHECK((about.st_mode & 07777) == 0600);
  CHECK_THROWS_WITH(write_keys(key.file, make_keys()), Contains("not overwritten"));
  CHECK(folder.read("fleet.key") == key.text);
  CHECK_THROWS_WITH(write_keys(folder / "no/fleet.key", make_keys()), Contains("No such file"));
  for (const int mode : {0640, 0604, 0620, 0602}) {
    ::chmod(key.file.c_str(), mode);
    CHECK_THAT(refusal(key.file), Contains("chmod 600 " + key.file.string()));
  }
  ::chmod(key.file.c_str(), 0400);
  CHECK(refusal(key.file).empty());
}

TEST_CASE("what is no key file is refused without waiting") {
  const TemporaryFolder folder;
  CHECK_THAT(refusal(folder / "absent"), Contains("absent: the key file cannot be read") && Contains("motley keygen"));
  CHECK_THAT(refusal(folder.path()), Contains("regular file"));
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK_THAT(refusal(folder / "pipe"), Contains("regular file"));
  CHECK_THAT(refusal_of(folder, ""), Contains("changed.key:1: this is no key file"));
  CHECK_THAT(refusal_of(folder, "[run]\n"), Contains(":1: this is no key file"));
  CHECK_THAT(refusal_of(folder, std::string(70000, 'a')), Contains("too long"));
}

TEST_CASE("a damaged key file is refused with the line, and no secret is in the words") {
  const TemporaryFolder folder;
  const Written key(folder), other([&] {
    std::filesystem::rename(folder / "fleet.key", folder / "first.key");
    return Written(folder);
  }());
  const Keys keys = read_keys(folder / "first.key"), others = read_keys(other.file);
  const auto check = [&](const std::string& content, const std::string& words) {
    const std::string text = refusal_of(folder, content);
    CAPTURE(words);
    CHECK_THAT(text, Contains(words));
    CHECK_THAT(
        text, !Contains(keys.curve_secret) && !Contains(others.curve_secret) && !Contains(keys.curve_secret.substr(1)));
    for (size_t line = 0; line + 40 < keys.certificate_private.size(); line += 40) {
      CHECK_THAT(text, !Contains(keys.certificate_private.substr(line, 40)));
    }
  };
  check(replaced(key.text, "key 1", "key 2"), ":1: a key file of version '2'");
  check(replaced(key.text, "curve-public .*\n", ""), ":2: expected 'curve-public ...'");
  check(replaced(key.text, "curve-secret .", "curve-secret "), ":3: a CURVE key has 40 characters");
  check(replaced(key.text, "curve-secret .", "curve-secret \\"), ":3: a CURVE key has 40 characters");
  check(replaced(key.text, "curve-secret .{40}", "curve-secret " + others.curve_secret), ":3: the secret CURVE key");
  check(replaced(key.text, "BEGIN CERT", "BEGIN  CERT"), ":4: expected '-----BEGIN CERTIFICATE-----'");
  check(replaced(key.text, "CERTIFICATE-----\nM", "CERTIFICATE-----\nN"), ":4: this is no certificate");
  check(replaced(key.text, "PRIVATE KEY-----\nM", "PRIVATE KEY-----\nN"), ":4: its private key cannot be read");
  check(key.text.substr(0, key.text.find("-----BEGIN CERT")) + keys.certificate + others.certificate_private,
        ":4: the private key is another certificate's");
  check(key.text + "\n", "nothing may follow the private key");
  // Cut anywhere: refused, whatever is left.
  for (size_t size = 0; size < key.text.size() - 1; size += 31) {
    CHECK_THAT(refusal_of(folder, key.text.substr(0, size)), Contains("changed.key:"));
  }
}

}  // namespace motley::actors
