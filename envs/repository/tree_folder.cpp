// Work trees in folders: read without following links, and written.
#include <sys/stat.h>

#include <fstream>

#include "envs/repository/work_tree.h"

namespace motley::envs {

namespace {

namespace fs = std::filesystem;

/// Reads at most what the tree has room for, whatever the size that the file claims to have.
std::string read_bytes(const fs::path& file, const WorkTree& tree, const std::string& path) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw TaskError(file.string() + ": cannot be opened");
  std::string bytes, piece(size_t{1} << 16, '\0');
  do {
    in.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    bytes.append(piece, 0, static_cast<size_t>(in.gcount()));
    tree.check_room(bytes.size(), path);
  } while (in);
  if (in.bad()) throw TaskError(file.string() + ": cannot be read");
  return bytes;
}

TreeEntry entry_at(const fs::directory_entry& found, const WorkTree& tree, const std::string& path) {
  const fs::file_status status = found.symlink_status();
  switch (status.type()) {
    case fs::file_type::directory:
      return {TreeEntry::Kind::folder};
    case fs::file_type::symlink:
      return {TreeEntry::Kind::link, false, fs::read_symlink(found.path()).string()};
    case fs::file_type::regular:
      return {TreeEntry::Kind::file, (status.permissions() & fs::perms::owner_exec) != fs::perms::none,
              read_bytes(found.path(), tree, path)};
    default:
      throw TaskError(found.path().string() + ": a pipe, a socket or a device; a tree holds files, folders and links");
  }
}

}  // namespace

WorkTree read_folder(const fs::path& folder, const TreeLimits& limits) {
  WorkTree tree(limits);
  try {
    if (!fs::is_directory(folder)) throw TaskError(folder.string() + ": is no folder");
    for (const fs::directory_entry& found : fs::recursive_directory_iterator(folder)) {
      const std::string path = found.path().lexically_relative(folder).generic_string();
      TreeEntry entry = entry_at(found, tree, path);
      try {
        tree.add(path, std::move(entry));
      } catch (const TaskError& error) {
        throw TaskError(folder.string() + ": " + error.what());
      }
    }
  } catch (const fs::filesystem_error& error) {
    throw TaskError(folder.string() + ": " + error.code().message());
  }
  return tree;
}

WorkTree read_tree(const fs::path& place, const TreeLimits& limits) {
  std::error_code error;
  const fs::file_status status = fs::status(place, error);
  if (fs::is_directory(status)) return read_folder(place, limits);
  if (fs::is_regular_file(status)) return read_archive(place, limits);
  throw TaskError(place.string() + (fs::exists(status) ? ": is neither a folder nor a tar file" : ": does not exist"));
}

void write_tree(const WorkTree& tree, const fs::path& folder) {
  // Nothing lies below a link, so nothing is written through one.
  for (const auto& [path, entry] : tree.entries()) {
    const fs::path place = folder / path;
    fs::create_directories(entry.kind == TreeEntry::Kind::folder ? place : place.parent_path());
    if (entry.kind == TreeEntry::Kind::link) fs::create_symlink(entry.content, place);
    if (entry.kind != TreeEntry::Kind::file) continue;
    std::ofstream out(place, std::ios::binary);
    out.write(entry.content.data(), static_cast<std::streamsize>(entry.content.size()));
    if (!out.flush()) throw std::runtime_error(place.string() + ": cannot be written");
    out.close();
    if (::chmod(place.c_str(), entry.executable ? 0755 : 0644) != 0)
      throw std::runtime_error(place.string() + ": its mode cannot be set");
  }
}

}  // namespace motley::envs
