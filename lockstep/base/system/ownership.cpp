#include "lockstep/base/system/ownership.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <system_error>

#include "lockstep/base/system/file_descriptor.h"

namespace lockstep::inline v0 {

std::string foreign_writer(int descriptor, uid_t user) {
  struct stat status = {};
  if (::fstat(descriptor, &status) != 0) return std::generic_category().message(errno);
  if (status.st_uid != user) return fmt::format("it belongs to the user {}", status.st_uid);
  if ((status.st_mode & S_IWOTH) != 0) return "every user may write it";
  return (status.st_mode & S_IWGRP) != 0 ? "its group may write it" : "";
}

std::optional<SymbolicLink> read_link(const std::filesystem::path& path) {
  // Checks and reads the same link, even if its name is reused meanwhile.
  const FileDescriptor opened(::open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat link = {};
  if (!opened.is_open() || ::fstat(opened.get(), &link) != 0 || !S_ISLNK(link.st_mode))
    return std::nullopt;
  std::array<char, PATH_MAX> target;
  const ssize_t size = ::readlinkat(opened.get(), "", target.data(), target.size());
  if (size < 0) return std::nullopt;
  const std::filesystem::path parent = path.has_parent_path() ? path.parent_path() : ".";
  struct stat directory = {};
  constexpr mode_t kShared = S_ISVTX | S_IWOTH;
  return SymbolicLink{.target = std::string(target.data(), static_cast<std::size_t>(size)),
                      .is_foreign = ::stat(parent.c_str(), &directory) == 0 &&
                                    (directory.st_mode & kShared) == kShared &&
                                    link.st_uid != ::geteuid() && link.st_uid != directory.st_uid};
}

}  // namespace lockstep::inline v0
