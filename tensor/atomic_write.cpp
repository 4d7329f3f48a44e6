#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <system_error>
#include <utility>

#include "tensor/model_file.h"

namespace motley {
namespace {

[[noreturn]] void fail(const std::filesystem::path& file, const char* what, int error) {
  throw std::runtime_error(file.string() + ": " + what + ": " + std::generic_category().message(error));
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { close(); }
  int get() const { return fd_; }
  int close() { return fd_ < 0 ? 0 : ::close(std::exchange(fd_, -1)); }

 private:
  int fd_;
};

void write_all(int fd, std::string_view bytes, const std::filesystem::path& file) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(file, "cannot write", errno);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

void write_and_sync(const std::filesystem::path& temporary, std::string_view bytes) {
  Descriptor out(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (out.get() < 0) fail(temporary, "cannot create", errno);
  write_all(out.get(), bytes, temporary);
  if (::fsync(out.get()) != 0) fail(temporary, "cannot sync", errno);
  if (out.close() != 0) fail(temporary, "cannot close", errno);
}

/// Makes the new name itself durable.
void sync_folder(const std::filesystem::path& folder) {
  const Descriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.get() < 0) fail(folder, "cannot open the folder", errno);
  // Some file systems cannot sync a folder and say EINVAL: then the rename is all there is.
  if (::fsync(opened.get()) != 0 && errno != EINVAL) fail(folder, "cannot sync the folder", errno);
}

}  // namespace

void write_file_atomically(const std::filesystem::path& file, std::string_view bytes) {
  static std::atomic<uint64_t> count{0};
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(file, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    throw std::runtime_error(file.string() + ": is there already and no regular file, which a rename would remove");
  }
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
  // A name of its own for each write: two writers of one file never share a temporary.
  std::string name = file.filename().string();
  name.insert(0, 1, '.')
      .append(".tmp-")
      .append(std::to_string(::getpid()))
      .append("-")
      .append(std::to_string(count.fetch_add(1)));
  const std::filesystem::path temporary = folder / name;
  try {
    write_and_sync(temporary, bytes);
    if (::rename(temporary.c_str(), file.c_str()) != 0) fail(file, "cannot put in place", errno);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_folder(folder);
}

}  // namespace motley
