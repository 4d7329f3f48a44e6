// What a program in a sandbox may try. Each attack fails, and another sandbox goes on unharmed meanwhile.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>

#include "tests/envs/sandbox_here.h"
#include "tests/temporary_folder.h"

namespace motley::envs {
namespace {

SandboxLimits small() {
  SandboxLimits limits;
  limits.memory_bytes = 64ULL << 20;
  limits.disk_bytes = 4ULL << 20;
  limits.processes = 32;
  limits.files = 500;
  limits.output_bytes = 4096;
  limits.call_seconds = 5;
  return limits;
}

/// One sandbox that is attacked from inside and a neighbour.
struct Pair {
  explicit Pair(SandboxHost& host) : attacked(host, small()), neighbour(host, small()) {
    neighbour.call("echo mine >mine; there=yes");
  }
  /// Both answer; the attacked one may have lost its shell but not its files.
  void check_unharmed() {
    CHECK(attacked.call("echo on").output == "on\n");
    CHECK(neighbour.call("echo $there; cat mine").output == "yes\nmine\n");
  }
  Sandbox attacked, neighbour;
};

/// Runs a Python program in it. The last line of what it prints says what came of it.
CallResult python(Sandbox& sandbox, const std::string& program) {
  sandbox.put("attack.py", file(program));
  return sandbox.call("/usr/bin/python3 attack.py");
}

TEST_CASE("attack: fork bomb, thread bomb, kill -9 -1", "[sandbox][attack]") {
  SandboxHost* host = sandbox_host(GENERATE(true, false));
  if (host == nullptr) return;
  Pair pair(*host);
  const CallResult bomb = pair.attacked.call("touch kept; f() { f | f & }; f; while :; do sleep 0.01; done", 0.5);
  CHECK(bomb.timed_out);
  CHECK(bomb.seconds < 3.0);
  CHECK(pair.attacked.call("echo *; set -- /proc/[0-9]*; echo $#").output == "kept\n2\n");  // first process and shell
  const CallResult many = pair.attacked.call("for i in {1..100}; do sleep 100 & done", 0.5);
  CHECK(many.output.find("Resource temporarily unavailable") != std::string::npos);
  CHECK(pair.attacked.call("sleep 100 & kill -9 -1; kill -9 1; kill -STOP 1; pgrep sleep; kill -9 $$").status == 137);
  CHECK(pair.attacked.call("pgrep sleep").output.empty());
  CHECK(pair.attacked.call("ls").output == "kept\n");
  pair.check_unharmed();
}

TEST_CASE("attack: memory of one process, of many, of files", "[sandbox][attack]") {
  SandboxHost* host = sandbox_host(GENERATE(true, false));
  if (host == nullptr) return;
  Pair pair(*host);
  const CallResult one = pair.attacked.call("head -c 200M /dev/zero | tail | wc -c");
  CHECK(one.output.find("209715200") == std::string::npos);
  CHECK_FALSE(one.timed_out);
  const CallResult many = pair.attacked.call(
      "for i in 1 2 3 4 5 6; do (v=$(head -c 15M /dev/zero | tr '\\0' x); sleep 1) & done; wait; echo survived");
  CHECK(many.out_of_memory);
  // Files count as memory. Three times 4 MiB fit beside little else.
  CHECK(pair.attacked.call("for d in /task /tmp /dev/shm; do cat /dev/zero >$d/full; done; df --output=pcent $PWD /tmp")
            .output.find("100%") != std::string::npos);
  pair.attacked.call("rm -f full /tmp/full /dev/shm/full");
  pair.check_unharmed();
}

TEST_CASE("attack: filling the disk and writing elsewhere", "[sandbox][attack]") {
  SandboxHost* host = sandbox_host();
  if (host == nullptr) return;
  Pair pair(*host);
  const CallResult full = pair.attacked.call("cat /dev/zero >full");
  CHECK(full.status != 0);
  CHECK(pair.attacked.call("stat -c %s full").output == std::to_string(4 << 20) + "\n");
  const CallResult files = pair.attacked.call("rm -f full; i=0; while :; do : >f$((i++)); done", 4);
  CHECK(files.too_many_files);
  CHECK_FALSE(files.timed_out);
  pair.attacked.call("cd /task; rm -f f*");
  const CallResult elsewhere = pair.attacked.call(
      "for f in /x /dev/x /usr/bin/x /usr/bin/python3 /bin/bash /etc/passwd /etc/x /proc/x /proc/sysrq-trigger "
      "/proc/sys/kernel/core_pattern /proc/1/oom_score_adj /lib/x /dev/kmsg /dev/mem /dev/sda; do echo x >$f && echo "
      "wrote $f; done 2>/dev/null; mount -o remount,rw / ; mkdir /a; ls /sys /run /root /home /var /opt");
  CHECK(elsewhere.output.find("wrote") == std::string::npos);
  CHECK(elsewhere.status != 0);
  pair.check_unharmed();
}

TEST_CASE("attack: endless output and binary output", "[sandbox][attack]") {
  SandboxHost* host = sandbox_host();
  if (host == nullptr) return;
  Pair pair(*host);
  const CallResult endless = pair.attacked.call("yes", 0.3);
  CHECK(endless.timed_out);
  CHECK(endless.cut_bytes > 100000);
  CHECK(endless.output.size() < 4200);
  const CallResult binary = pair.attacked.call("head -c 3000000 /dev/urandom");
  CHECK(binary.status == 0);
  CHECK(binary.cut_bytes == 3000000 - 4096);
  // A job in the background that never stops does not hold up the calls after it.
  CHECK(pair.attacked.call("yes & sleep 0.1").status == 0);
  CHECK(pair.attacked.call("echo next").seconds < 1.0);
  pair.attacked.call("kill %1");
  pair.attacked.call("true");
  pair.check_unharmed();
}

TEST_CASE("attack: reading this machine's files and environment, and other sandboxes", "[sandbox][attack]") {
  SandboxHost* host = sandbox_host();
  if (host == nullptr) return;
  const TemporaryFolder folder;
  const std::string secret_path = folder.path() / "secret";
  std::ofstream(secret_path) << "SECRET-1";
  setenv("MOTLEY_TEST_SECRET", "SECRET-2", 1);
  SandboxHost second;  // its processes start after the variable is set
  Pair pair(second);
  pair.neighbour.call("echo SECRET-3 >mine; echo SECRET-3 >/tmp/mine; sleep 1000 & exec 5<mine");
  const CallResult read =
      pair.attacked.call("cat " + secret_path +
                         " /etc/shadow /root/.bashrc /root/.ssh/* /proc/1/environ /proc/1/mem /proc/*/environ; env; "
                         "ls /proc/*/root/ /proc/*/cwd/ /proc/1/fd; find / -name mine -not -path '/proc/*'; ls -la / "
                         "/tmp; pgrep -a sleep");
  CHECK(read.output.find("SECRET") == std::string::npos);
  CHECK(read.output.find("sleep 1000") == std::string::npos);
  CHECK(read.output.find("/mine") == std::string::npos);
  CHECK(pair.attacked.call("env | cut -d= -f1 | sort | tr '\\n' ' '").output ==
        "HOME LANG PATH PWD PYTHONDONTWRITEBYTECODE SHLVL TERM TMPDIR USER _ ");
  CHECK(pair.attacked.call("set -- /proc/[0-9]*; echo $#").output == "2\n");
  unsetenv("MOTLEY_TEST_SECRET");
}

TEST_CASE("attack: sockets", "[sandbox][attack]") {
  SandboxHost* host = sandbox_host();
  if (host == nullptr) return;
  // Someone listens on this machine, on its loopback device.
  const Descriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  REQUIRE(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(listen(listener.get(), 1) == 0);
  REQUIRE(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  Pair pair(*host);
  const std::string port = std::to_string(ntohs(address.sin_port));
  CHECK(pair.attacked.call("echo x >/dev/tcp/127.0.0.1/" + port).output.find("Connection refused") !=
        std::string::npos);
  CHECK(pair.attacked.call("echo x >/dev/udp/192.0.2.1/53").output.find("unreachable") != std::string::npos);
  CHECK(python(pair.attacked,
               "import socket\n"
               "for family in range(3, 46):\n"
               "    if family == socket.AF_INET6: continue\n"
               "    try: socket.socket(family, socket.SOCK_DGRAM); print('open', family)\n"
               "    except OSError: pass\n"
               "for kind, number in ((socket.SOCK_RAW, 1), (socket.SOCK_RAW, 255)):\n"
               "    try: socket.socket(socket.AF_INET, kind, number); print('raw')\n"
               "    except OSError: pass\n"
               "print('done')\n")
            .output == "done\n");
  pair.check_unharmed();
}

TEST_CASE("attack: ptrace, mounts, namespaces, more rights", "[sandbox][attack]") {
  SandboxHost* host = sandbox_host();
  if (host == nullptr) return;
  Pair pair(*host);
  const CallResult calls = python(
      pair.attacked,
      "import ctypes, os\n"
      "c = ctypes.CDLL(None, use_errno=True)\n"
      "parent = os.getppid()\n"
      "tries = {'ptrace': (101, 16, parent, 0, 0), 'vm_readv': (310, parent, 0, 0, 0, 0, 0),\n"
      "  'unshare': (272, 0x10000000), 'setns': (308, 0, 0), 'mount': (165, 0, b'/task', b'tmpfs', 0, 0),\n"
      "  'umount': (166, b'/proc', 2), 'pivot': (155, b'/task', b'/task'), 'bpf': (321, 0, 0, 0),\n"
      "  'io_uring': (425, 1, 0), 'keyctl': (250, 0, -3, 0), 'clone_newuser': (56, 0x10000011, 0),\n"
      "  'clone3': (435, 0, 0), 'memfd': (319, b'x', 0), 'userfaultfd': (323, 1), 'fsopen': (430, b'tmpfs', 0),\n"
      "  'perf': (298, 0, 0, 0, 0, 0), 'kexec': (246, 0, 0, 0, 0), 'reboot': (169, 1, 2, 3, 0),\n"
      "  'personality': (135, 0x40000), 'chroot': (161, b'/task'), 'init_module': (175, 0, 0, 0),\n"
      "  'shmget': (29, 0, 4096, 0o1600), 'pidfd_getfd': (438, 0, 0, 0)}\n"
      "for name, call in tries.items():\n"
      "    if c.syscall(*call) != -1: print('allowed:', name)\n"
      "for call in (lambda: os.setuid(0), lambda: os.chroot('/'), lambda: open('/proc/1/mem', 'r+b'),\n"
      "             lambda: os.mknod('/task/disk', 0o060666, 0xfe00)):\n"
      "    try: call(); print('allowed')\n"
      "    except OSError: pass\n"
      "status = open('/proc/self/status').read()\n"
      "print([line for line in status.splitlines() if line.split(':')[0] in ('CapEff', 'CapBnd', 'NoNewPrivs', "
      "'Seccomp')])\n");
#if defined(__x86_64__)
  CHECK(calls.output ==
        "['CapEff:\\t0000000000000000', 'CapBnd:\\t0000000000000000', 'NoNewPrivs:\\t1', 'Seccomp:\\t2']\n");
#endif
  CHECK(pair.attacked.call("unshare -Ur true || su -c true || mount -t tmpfs none /tmp").status != 0);
  CHECK(pair.attacked.call("ulimit -Hu unlimited || ulimit -Hn 100000").status != 0);
  pair.check_unharmed();
}

TEST_CASE("attack: links out of the tree, and names made to confuse", "[sandbox][attack]") {
  SandboxHost* host = sandbox_host();
  if (host == nullptr) return;
  Pair pair(*host);
  pair.attacked.call(
      "ln -s /etc/passwd passwd; ln -s / root; ln -s /proc/1/root init; ln -s loop loop; ln -s ../../.. up; "
      "touch -- $'a\\nb' $'-rf' '*' $'\\033[31m'");
  const FileTree tree = pair.attacked.take();
  CHECK(tree.at("passwd") == link_to("/etc/passwd"));
  CHECK(tree.at("root").kind == TreeEntry::Kind::link);
  CHECK(tree.contains("a\nb"));
  CHECK(tree.size() == 9);
  CHECK_THROWS_AS(pair.attacked.put("root/tmp/x", {}), SandboxError);
  CHECK_THROWS_AS(pair.attacked.take("root"), SandboxError);
  pair.check_unharmed();
}

}  // namespace
}  // namespace motley::envs
