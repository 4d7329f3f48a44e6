// What motley doctor says of sandboxes, where they work and where user namespaces are off.
#include <nlohmann/json.hpp>

#include "envs/sandbox/support.h"
#include "tests/app/binary.h"

namespace motley::app {
namespace {

TEST_CASE("doctor says what holds sandboxes to their limits, or the command that mends them") {
  const TemporaryFolder folder;
  const Ended ended = run_binary(folder, {"doctor", "--json"});
  REQUIRE(ended.code == 0);
  const nlohmann::json finding = nlohmann::json::parse(ended.out).at("sandboxes");
  const std::string state = finding.at("value");
  const bool works = state.find("system call filter") != std::string::npos;
  CHECK(finding.contains("mend") == !works);
}

TEST_CASE("where user namespaces are off, doctor says so and how to turn them on") {
  if (!envs::examine_sandboxes().works) {
    WARN("SKIPPED, this machine makes no sandboxes");
    return;
  }
  const TemporaryFolder folder;
  // A user namespace of its own, in which no further ones may be made.
  const Ended ended =
      run_binary(folder, {"doctor"}, "unshare -Ur sh -c 'echo 0 >/proc/sys/user/max_user_namespaces && \"$@\"' sh");
  CHECK(ended.code == 0);
  CHECK(ended.out.find("sandboxes         none: ") != std::string::npos);
  CHECK(ended.out.find("-> sysctl -w user.max_user_namespaces=15000\n") != std::string::npos);
}

}  // namespace
}  // namespace motley::app
