// Which users may have written a file: what this user wrote is trusted, and nothing else.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string>

namespace lockstep::inline v0 {

/// Why a user other than `user` may have written the open file or directory `descriptor`: "it
/// belongs to the user 1001", "its group may write it"; empty if no other user can. The group
/// permissions include those of an ACL.
std::string foreign_writer(int descriptor, uid_t user = ::geteuid());

/// A symbolic link.
struct SymbolicLink {
  std::filesystem::path target;  ///< as it is stored
  /// Whether another user created it in a sticky, world-writable directory such as /tmp: following
  /// it would write to a file that this user chose. Same rule as the kernel's
  /// fs.protected_symlinks, which may be off.
  bool is_foreign = false;
};

/// Reads the link `path`; nullopt if it is not a link or cannot be read.
std::optional<SymbolicLink> read_link(const std::filesystem::path& path);

}  // namespace lockstep::inline v0
