#include "tests/fleet/process_facts.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace motley::fleet {

namespace fs = std::filesystem;

int64_t open_descriptors(pid_t process) {
  std::error_code gone;
  int64_t count = 0;
  for (fs::directory_iterator entry("/proc/" + std::to_string(process) + "/fd", gone), end; !gone && entry != end;
       entry.increment(gone))
    ++count;
  return count;
}

int64_t resident_bytes(pid_t process) {
  std::ifstream in("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("VmRSS:")) return std::atoll(line.c_str() + 6) * 1024;
  return 0;
}

int inhabitants(const std::string& identity) {
  int count = 0;
  std::error_code gone;
  for (fs::directory_iterator entry("/proc", gone), end; !gone && entry != end; entry.increment(gone)) {
    const std::string link = entry->path().string() + "/ns/net";
    char target[64] = {};
    if (::readlink(link.c_str(), target, sizeof target - 1) > 0 && identity.find(target) != std::string::npos) ++count;
  }
  return count;
}

}  // namespace motley::fleet
