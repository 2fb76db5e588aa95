// Checks: the folders of checkpoints and temporary files are writable, have space, and are the same
// on all hosts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "apps/lockstep/doctor/ranks.h"

namespace lockstep::inline v0::apps::doctor {

/// Remedy for a file access that did not finish in time.
inline constexpr const char* kCheckTheDisk =
    "the disk or file server does not respond: check df, mount and dmesg on that host";

struct FolderFacts {
  bool writes = false;      ///< whether this rank tested writing
  std::string folder = {};  ///< the tested folder
  /// Nearest existing parent, in which the folder will be created; empty if it exists.
  std::string parent = {};
  std::string failure = {};  ///< why writing failed; empty on success
  std::int64_t free_bytes = -1;
  std::int64_t free_inodes = -1;    ///< -1: not limited
  double megabytes_per_second = 0;  ///< rate of writing and syncing a small file
  bool sees_marker = true;          ///< whether this rank sees the chief's marker file

  NLOHMANN_DEFINE_TYPE_INTRUSIVE_WITH_DEFAULT(FolderFacts, writes, folder, parent, failure,
                                              free_bytes, free_inodes, megabytes_per_second,
                                              sees_marker)
};

/// Tests writing in `folder`, or in its nearest existing parent: writes `bytes` to an unlinked file
/// and syncs it. No file remains, even if this process is killed.
FolderFacts try_folder(const std::filesystem::path& folder, std::size_t bytes);

/// Collective. Only the chief tests writing. It also creates a marker file, which the other ranks
/// look for.
Reports<FolderFacts> measure_checkpoint_folder(Ranks& ranks, const std::string& folder);
/// `checkpoints`. Skipped if `folder` is empty.
Outcome judge_checkpoint_folder(const Reports<FolderFacts>& reports, const std::string& folder);

/// Collective. The first rank of each host tests the folder for temporary files.
Reports<FolderFacts> measure_temporary_folder(Ranks& ranks);
/// `temporary-files`: the folder of MPI's session files and of checkpoints that are written for
/// verification.
Outcome judge_temporary_folder(const Reports<FolderFacts>& reports);

}  // namespace lockstep::inline v0::apps::doctor
