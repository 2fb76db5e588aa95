// The data: there, readable, and the same on all hosts.
#pragma once

#include <cstdint>
#include <string>

#include "apps/lockstep/doctor/ranks.h"

namespace lockstep::apps::doctor {

struct DataFacts {
  std::int64_t files = 0;
  std::int64_t bytes = 0;           ///< of all files; 0 of folders of images, which may hold millions
  std::int64_t folders = 0;         ///< of classes of images
  std::string fingerprint = {};     ///< of the names and sizes of all files; of images, of all names and some sizes
  std::string failure = {};         ///< why they cannot be read; empty where they can
  bool is_unknown = false;          ///< whether that is because the text means nothing, rather than for lack of files
  double megabytes_per_second = 0;  ///< of a first look at one file, past the page cache; 0: not measured

  NLOHMANN_DEFINE_TYPE_INTRUSIVE_WITH_DEFAULT(DataFacts, files, bytes, folders, fingerprint, failure, is_unknown,
                                              megabytes_per_second)
};

/// What one process finds. `measures`: whether it times how fast the first file comes.
DataFacts look_at_data(const std::string& spec, const std::string& data_dir, bool measures);

/// Collective. `spec`, `data_dir`: as of the options --data and --data-dir. Throws Error (input), the same on all
/// ranks, where `spec` means nothing on any of them.
Reports<DataFacts> measure_data(Ranks& ranks, const std::string& spec, const std::string& data_dir);

/// `data`. Without a `spec` nothing is checked.
Outcome judge_data(const Reports<DataFacts>& reports, const std::string& spec);

}  // namespace lockstep::apps::doctor
