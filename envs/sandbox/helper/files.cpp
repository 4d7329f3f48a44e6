#include "envs/sandbox/helper/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "envs/sandbox/helper/system.h"

namespace motley::envs {
namespace {

constexpr int most_levels = 64;

std::string problem(std::string_view path, const char* what) {
  return std::string(path) + ": " + what + ": " + strerror(errno);
}

class Folder {
 public:
  explicit Folder(int fd) : fd_(fd) {}
  Folder(Folder&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Folder& operator=(Folder&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Folder() {
    if (fd_ >= 0) close(fd_);
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

std::string put_into(int folder, const std::string& name, wire::EntryKind kind, std::string_view content) {
  if (kind == wire::EntryKind::folder)
    return mkdirat(folder, name.c_str(), 0755) == 0 || errno == EEXIST ? "" : problem(name, "no folder");
  unlinkat(folder, name.c_str(), 0);
  if (kind == wire::EntryKind::symlink)
    return symlinkat(std::string(content).c_str(), folder, name.c_str()) == 0 ? "" : problem(name, "no link");
  const int fd = openat(folder, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return problem(name, "cannot be made");
  std::string wrong;
  if (!write_all(fd, content)) wrong = problem(name, "cannot be written");
  if (wrong.empty() && fchmod(fd, kind == wire::EntryKind::executable ? 0755 : 0644) != 0)
    wrong = problem(name, "cannot be given its mode");
  close(fd);
  return wrong;
}

class Taker {
 public:
  Taker(const TakeLimits& limits, const TreeVisitor& visit) : limits_(limits), visit_(visit) {}

  /// Takes over the descriptor.
  std::string walk(int fd, const std::string& prefix, int level) {
    DIR* folder = fdopendir(fd);
    if (folder == nullptr) return problem(prefix, "cannot be read");
    std::string wrong;
    while (wrong.empty()) {
      const dirent* entry = readdir(folder);
      if (entry == nullptr) break;
      const std::string name = entry->d_name;
      if (name == "." || name == "..") continue;
      if (++entries_ > limits_.entries) wrong = "more than " + std::to_string(limits_.entries) + " files and folders";
      if (wrong.empty()) wrong = one(dirfd(folder), name, prefix + name, level);
    }
    closedir(folder);
    return wrong;
  }

 private:
  std::string one(int folder, const std::string& name, const std::string& path, int level) {
    struct stat info {};
    if (fstatat(folder, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return problem(path, "cannot be read");
    if (S_ISLNK(info.st_mode)) return link(folder, name, path);
    if (!S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) return "";
    // Its owner can read it, whatever mode was left on it.
    if ((info.st_mode & 0700) < (S_ISDIR(info.st_mode) ? 0700U : 0400U))
      fchmodat(folder, name.c_str(), info.st_mode | (S_ISDIR(info.st_mode) ? 0700 : 0400), 0);
    const int fd = openat(folder, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return problem(path, "cannot be read");
    if (S_ISREG(info.st_mode)) return file(fd, info, path);
    if (level >= most_levels) {
      close(fd);
      return path + ": more than " + std::to_string(most_levels) + " folders deep";
    }
    visit_(path, wire::EntryKind::folder, "");
    return walk(fd, path + "/", level + 1);
  }

  std::string link(int folder, const std::string& name, const std::string& path) {
    char target[4097];
    const ssize_t size = readlinkat(folder, name.c_str(), target, sizeof target);
    if (size < 0) return problem(path, "cannot be read");
    return give(path, wire::EntryKind::symlink, std::string(target, static_cast<size_t>(size)));
  }

  /// Takes over the descriptor.
  std::string file(int fd, const struct stat& info, const std::string& path) {
    const auto size = static_cast<uint64_t>(info.st_size);
    std::string content, wrong;
    if (size > limits_.bytes - bytes_) {
      wrong = too_large();
    } else {
      content.resize(size);
      if (!read_all(fd, content.data(), size)) wrong = problem(path, "cannot be read");
    }
    close(fd);
    if (!wrong.empty()) return wrong;
    return give(path, (info.st_mode & 0100) != 0 ? wire::EntryKind::executable : wire::EntryKind::file, content);
  }

  std::string give(const std::string& path, wire::EntryKind kind, const std::string& content) {
    if (content.size() > limits_.bytes - bytes_) return too_large();
    bytes_ += content.size();
    visit_(path, kind, content);
    return "";
  }

  std::string too_large() const { return "more than " + std::to_string(limits_.bytes) + " bytes"; }

  TakeLimits limits_;
  const TreeVisitor& visit_;
  uint64_t bytes_ = 0, entries_ = 0;
};

}  // namespace

std::string put_file(std::string_view path, wire::EntryKind kind, std::string_view content) {
  Folder folder(open(wire::work_folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (size_t slash = 0; (slash = path.find('/')) != std::string_view::npos; path.remove_prefix(slash + 1)) {
    const std::string name(path.substr(0, slash));
    if (mkdirat(folder.fd(), name.c_str(), 0755) != 0 && errno != EEXIST) return problem(name, "no folder");
    Folder next(openat(folder.fd(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (next.fd() < 0) return problem(name, "is no folder");
    folder = std::move(next);
  }
  return put_into(folder.fd(), std::string(path), kind, content);
}

std::string take_tree(const std::string& folder, const TakeLimits& limits, const TreeVisitor& visit) {
  const std::string path = std::string(wire::work_folder) + (folder.empty() ? "" : "/" + folder);
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return problem(path, "cannot be read");
  return Taker(limits, visit).walk(fd, "", 1);
}

}  // namespace motley::envs
