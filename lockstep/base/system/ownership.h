// Which users may have written a file: what this user wrote is trusted, and nothing else.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string>

namespace lockstep {

/// Why a user other than `user` may have written the open file or directory `descriptor`: "it
/// belongs to the user 1001", "its group may write it"; empty if no other user can. An ACL that
/// lets others write shows in the permissions of the group.
std::string foreign_writer(int descriptor, uid_t user = ::geteuid());

/// A symbolic link.
struct SymbolicLink {
  std::filesystem::path target;  ///< as it is stored
  /// Whether another user made it in a directory like /tmp, which all users may write and where
  /// each may remove only their own names: whoever follows it writes where that user chooses. The
  /// rule of the kernel's fs.protected_symlinks, which may be off.
  bool is_foreign = false;
};

/// The link `path`; nullopt if it is none, or cannot be read.
std::optional<SymbolicLink> read_link(const std::filesystem::path& path);

}  // namespace lockstep
