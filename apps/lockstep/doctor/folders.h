// The folders of data and checkpoints: there, readable or writable, with room, and the same on all hosts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "apps/lockstep/doctor/ranks.h"

namespace lockstep::apps::doctor {

struct DataFacts {
  std::int64_t files = 0;
  std::int64_t bytes = 0;
  std::string fingerprint = {};     ///< of the names and sizes of all files
  std::string failure = {};         ///< why they cannot be read; empty where they can
  double megabytes_per_second = 0;  ///< of a first look at one file, past the page cache; 0: not measured

  NLOHMANN_DEFINE_TYPE_INTRUSIVE(DataFacts, files, bytes, fingerprint, failure, megabytes_per_second)
};

/// Collective. `spec`, `data_dir`: as of the options --data and --data-dir.
Reports<DataFacts> measure_data(Ranks& ranks, const std::string& spec, const std::string& data_dir);

/// `data`. Without a `spec` nothing is checked.
Outcome judge_data(const Reports<DataFacts>& reports, const std::string& spec);

struct FolderFacts {
  bool writes = false;       ///< whether this rank tried to write: the first of each host, to its temporary folder too
  std::string failure = {};  ///< why it could not; empty where it could
  std::int64_t free_bytes = -1;
  std::int64_t free_inodes = -1;    ///< -1: the file system has no such number
  double megabytes_per_second = 0;  ///< of a small file that is written and brought to the disk
  bool sees_marker = true;          ///< whether what the chief put there is here as well

  NLOHMANN_DEFINE_TYPE_INTRUSIVE(FolderFacts, writes, failure, free_bytes, free_inodes, megabytes_per_second,
                                 sees_marker)
};

/// What one process can do in `folder`, or in the nearest folder above it that exists: writes `bytes`, brings them to
/// the disk, and removes them again.
FolderFacts try_folder(const std::filesystem::path& folder, std::size_t bytes);

/// Collective. The chief alone writes checkpoints; it leaves a marker for the others to look for.
Reports<FolderFacts> measure_checkpoint_folder(Ranks& ranks, const std::string& folder);
/// `checkpoints`. Without a `folder` nothing is checked.
Outcome judge_checkpoint_folder(const Reports<FolderFacts>& reports, const std::string& folder);

/// Collective. The first rank of each host tries the folder for temporary files.
Reports<FolderFacts> measure_temporary_folder(Ranks& ranks);
/// `temporary-files`: where MPI keeps its sessions, and ranks that are not the chief what they compare.
Outcome judge_temporary_folder(const Reports<FolderFacts>& reports, const std::string& folder);

}  // namespace lockstep::apps::doctor
