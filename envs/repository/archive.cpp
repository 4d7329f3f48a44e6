// Work trees in tar files, read by libarchive (https://libarchive.org) with its tar reader and three filters alone.
#include <archive.h>
#include <archive_entry.h>

#include <algorithm>
#include <memory>

#include "envs/repository/work_tree.h"

namespace motley::envs {

namespace {

using Archive = std::unique_ptr<archive, decltype(&archive_read_free)>;

/// "./a/b/" as "a/b"; empty for the tree itself.
std::string plain_path(std::string path) {
  while (path.starts_with("./")) path.erase(0, path.find_first_not_of('/', 1));
  while (path.ends_with('/')) path.pop_back();
  return path == "." ? "" : path;
}

class Reader {
 public:
  Reader(const std::filesystem::path& file, const TreeLimits& limits)
      : name_(file.string()), archive_(archive_read_new(), archive_read_free), tree_(limits) {
    archive* a = archive_.get();
    if (!a) throw std::bad_alloc();
    archive_read_support_format_tar(a);
    archive_read_support_filter_gzip(a);
    archive_read_support_filter_xz(a);
    archive_read_support_filter_zstd(a);
    if (archive_read_open_filename(a, file.c_str(), size_t{1} << 16) != ARCHIVE_OK) refuse_archive();
  }

  WorkTree read() {
    for (;;) {
      archive_entry* entry = nullptr;
      const int code = archive_read_next_header(archive_.get(), &entry);
      if (code == ARCHIVE_EOF) return std::move(tree_);
      // A warning: a name that the C locale cannot spell, whose bytes come as they are.
      if (code != ARCHIVE_OK && code != ARCHIVE_WARN) refuse_archive();
      try {
        add(entry);
      } catch (const TaskError& error) {
        throw TaskError(name_ + ": " + error.what());
      }
    }
  }

 private:
  [[noreturn]] void refuse_archive() const {
    const char* reason = archive_error_string(archive_.get());
    throw TaskError(name_ + ": no tar file that can be read: " + (reason ? reason : "unknown error"));
  }

  void add(archive_entry* entry) {
    const char* raw = archive_entry_pathname(entry);
    if (!raw) throw TaskError("an entry has no name");
    const std::string path = plain_path(raw);
    if (archive_entry_hardlink(entry))
      throw TaskError("path '" + path + "' is a hard link; pack with tar --hard-dereference");
    switch (archive_entry_filetype(entry)) {
      case AE_IFDIR:
        if (!path.empty()) tree_.add(path, {TreeEntry::Kind::folder});
        return;
      case AE_IFLNK: {
        const char* target = archive_entry_symlink(entry);
        tree_.add(path, {TreeEntry::Kind::link, false, target ? target : ""});
        return;
      }
      case AE_IFREG:
        tree_.add(path, {TreeEntry::Kind::file, (archive_entry_perm(entry) & 0100) != 0, content(entry, path)});
        return;
      default:
        throw TaskError("path '" + path + "' is a pipe or a device; a tree holds files, folders and links");
    }
  }

  /// Holes of sparse files come out as zeros, and count; the library leaves out the one at the end.
  std::string content(archive_entry* entry, const std::string& path) {
    std::string bytes, piece(size_t{1} << 16, '\0');
    for (;;) {
      const la_ssize_t read = archive_read_data(archive_.get(), piece.data(), piece.size());
      if (read < 0) refuse_archive();
      if (read == 0) break;
      tree_.check_room(bytes.size() + static_cast<size_t>(read), path);
      bytes.append(piece, 0, static_cast<size_t>(read));
    }
    const auto size = static_cast<uint64_t>(std::max<la_int64_t>(archive_entry_size(entry), 0));
    tree_.check_room(size, path);
    bytes.resize(std::max<size_t>(bytes.size(), size));
    return bytes;
  }

  std::string name_;
  Archive archive_;
  WorkTree tree_;
};

}  // namespace

WorkTree read_archive(const std::filesystem::path& file, const TreeLimits& limits) {
  return Reader(file, limits).read();
}

}  // namespace motley::envs
