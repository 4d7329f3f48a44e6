// Provisioner "command" with a real ssh to a real sshd on this machine, with keys and settings of its own. A test alone
// needs sshd: installing it starts a service that listens, which is nothing that a build should do to a machine.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <thread>

#include "actors/provision/command_provisioner.h"
#include "envs/child_process.h"
#include "tests/temporary_folder.h"

namespace motley::actors {
namespace {

const std::filesystem::path kServer = "/usr/sbin/sshd";

uint16_t free_port() {
  const envs::Descriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  REQUIRE(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  return ntohs(address.sin_port);
}

int run(std::vector<std::string> words) {
  envs::ChildProcess child({.words = std::move(words)});
  child.talk("", std::chrono::steady_clock::now() + std::chrono::seconds(30));
  return child.end();
}

/// An sshd that lets in whoever holds a key of this folder, as the user who runs the test.
class Server {
 public:
  explicit Server(const TemporaryFolder& folder) : folder_(folder), port_(std::to_string(free_port())) {
    for (const char* key : {"host", "user"})
      REQUIRE(run({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", (folder / key).string()}) == 0);
    folder.write("known", "[127.0.0.1]:" + port_ + " " + folder.read("host.pub"));
    const std::string at = folder.path().string();
    folder.write("config", "Port " + port_ + "\nListenAddress 127.0.0.1\nHostKey " + at + "/host\nAuthorizedKeysFile " +
                               at +
                               "/user.pub\nStrictModes no\nUsePAM no\nPidFile none\nPasswordAuthentication no\n"
                               "KbdInteractiveAuthentication no\nPermitRootLogin yes\n");
    sshd_ = std::make_unique<envs::ChildProcess>(
        envs::ChildOptions{.words = {kServer.string(), "-D", "-e", "-f", at + "/config"}, .bound_to_thread = true});
  }
  bool ready() {
    for (int i = 0; i < 500 && sshd_->running(); ++i) {
      if (sshd_->errors().find("listening on") != std::string::npos) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }
  std::string complaint() const { return sshd_->last_error(); }
  std::vector<std::string> words(const std::string& remote) const {
    return {"ssh",       "-F",
            "none",      "-n",
            "-p",        port_,
            "-i",        (folder_ / "user").string(),
            "-o",        "BatchMode=yes",
            "-o",        "UserKnownHostsFile=" + (folder_ / "known").string(),
            "127.0.0.1", remote};
  }

 private:
  const TemporaryFolder& folder_;
  std::string port_;
  std::unique_ptr<envs::ChildProcess> sshd_;
};

TEST_CASE("command: an instance is started, found and stopped over ssh", "[provision]") {
  const TemporaryFolder folder;
  if (!std::filesystem::exists(kServer)) {
    WARN("SKIPPED: no sshd here");
    return;
  }
  const bool folder_made = geteuid() == 0 && mkdir("/run/sshd", 0755) == 0;  // root's sshd wants it
  {
    Server server(folder);
    if (!server.ready()) {
      WARN("SKIPPED: sshd does not start: " << server.complaint());
      return;
    }
    folder.write("sampler", "trap 'exit 0' TERM\nwhile :; do sleep 0.05; done\n");
    const std::string sampler = "sh " + (folder / "sampler").string() + " --join {join} --instance";
    const ProvisionOptions options{
        .provisioner = "command",
        .start = server.words("setsid " + sampler + " {instance} </dev/null >/dev/null 2>&1 &"),
        // The brackets keep the pattern from finding the shell that holds it.
        .stop = server.words("pkill -TERM -f '[-]-instance {instance}$'"),
        .list = server.words("pgrep -af '" + (folder / "[s]ampler").string() + "' | sed 's/.*--instance //'"),
        .call_seconds = 30};
    const ProvisionContext context{.prefix = "run-0-h100-", .group = "h100", .profile = "h100-fp8", .join = "here:1"};
    CommandProvisioner provisioner(options, context, {});
    provisioner.start("run-0-h100-1");
    const std::vector<Instance> listed = provisioner.list();
    REQUIRE(listed.size() == 1);
    CHECK(listed[0].name == "run-0-h100-1");
    CHECK(provisioner.stop_all({"run-0-h100-1"}, std::chrono::steady_clock::now() + std::chrono::seconds(20)).empty());
    size_t left = 1;
    for (int i = 0; i < 20 && left > 0; ++i) left = provisioner.list().size();
    CHECK(left == 0);
    CHECK_THROWS_WITH(provisioner.stop("run-0-h100-1"), "the stop command 'ssh' ended with exit status 1");
  }
  if (folder_made) rmdir("/run/sshd");
}

}  // namespace
}  // namespace motley::actors
