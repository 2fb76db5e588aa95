// The folders of checkpoints and of temporary files: writable, with room, and the same on all hosts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "apps/lockstep/doctor/ranks.h"

namespace lockstep::apps::doctor {

/// Where files are not to be had in time.
inline constexpr const char* kLookAtTheDisk =
    "the disk or file server does not answer: look at df, mount and dmesg of that host";

struct FolderFacts {
  bool writes = false;       ///< whether this rank tried to write: the first of each host, to its temporary folder too
  std::string folder = {};   ///< that it tried
  std::string parent = {};   ///< in which the folder is yet to be made; empty where the folder is there
  std::string failure = {};  ///< why it could not; empty where it could
  std::int64_t free_bytes = -1;
  std::int64_t free_inodes = -1;    ///< -1: the file system has no such number
  double megabytes_per_second = 0;  ///< of a small file that is written and brought to the disk
  bool sees_marker = true;          ///< whether what the chief put there is here as well

  NLOHMANN_DEFINE_TYPE_INTRUSIVE_WITH_DEFAULT(FolderFacts, writes, folder, parent, failure, free_bytes, free_inodes,
                                              megabytes_per_second, sees_marker)
};

/// What one process can do in `folder`, or in the nearest folder above it that exists: writes `bytes` and brings them
/// to the disk. Nothing of it stays, however this process ends.
FolderFacts try_folder(const std::filesystem::path& folder, std::size_t bytes);

/// Collective. The chief alone writes checkpoints; it leaves a marker for the others to look for.
Reports<FolderFacts> measure_checkpoint_folder(Ranks& ranks, const std::string& folder);
/// `checkpoints`. Without a `folder` nothing is checked.
Outcome judge_checkpoint_folder(const Reports<FolderFacts>& reports, const std::string& folder);

/// Collective. The first rank of each host tries the folder for temporary files.
Reports<FolderFacts> measure_temporary_folder(Ranks& ranks);
/// `temporary-files`: where MPI keeps its sessions, and ranks that are not the chief what they compare.
Outcome judge_temporary_folder(const Reports<FolderFacts>& reports);

}  // namespace lockstep::apps::doctor
