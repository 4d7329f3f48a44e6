// motley keygen: a file for its owner alone, never over another, and no secret in what is said.
#include <sys/stat.h>

#include "tests/app/binary.h"

namespace motley::app {

TEST_CASE("keygen makes a key file once, and tells no secret") {
  const TemporaryFolder folder;
  const Ended made = run_binary(folder, {"keygen", "fleet.key"}, "umask 0;");
  CHECK(made.code == 0);
  CHECK(made.err.empty());
  CHECK(made.out.find("fleet.key: a new key") == 0);
  struct stat about {};
  REQUIRE(::stat((folder / "fleet.key").c_str(), &about) == 0);
  CHECK((about.st_mode & 07777) == 0600);
  const std::string key = folder.read("fleet.key");
  CHECK(key.starts_with("motley fleet key 1\n"));
  const size_t secret = key.find("curve-secret ") + 13;
  CHECK(made.out.find(key.substr(secret, 40)) == std::string::npos);

  require_refused(run_binary(folder, {"keygen", "fleet.key"}), "fleet.key: there is a file of this name");
  CHECK(folder.read("fleet.key") == key);
  require_refused(run_binary(folder, {"keygen", "none/fleet.key"}),
                  "none/fleet.key: the key file cannot be made: No such");
  require_refused(run_binary(folder, {"keygen"}), "file is required");
}

}  // namespace motley::app
