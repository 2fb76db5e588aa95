// Check: the data exist, can be read, and are the same on all hosts.
#pragma once

#include <cstdint>
#include <string>

#include "apps/lockstep/doctor/ranks.h"

namespace lockstep::inline v0::apps::doctor {

struct DataFacts {
  std::int64_t files = 0;
  /// Total size; 0 for folders of images, which may contain millions of files.
  std::int64_t bytes = 0;
  std::int64_t folders = 0;  ///< number of folders of images
  /// Hash of all names and sizes; for folders of images, of all names and some sizes.
  std::string fingerprint = {};
  std::string failure = {};  ///< why the data cannot be read; empty if they can
  /// encode_bytes() of ErrorMessage::pack() of the error if the specification is invalid.
  std::string unknown = {};
  /// Rate of reading one file without the page cache; 0: not measured.
  double megabytes_per_second = 0;

  NLOHMANN_DEFINE_TYPE_INTRUSIVE_WITH_DEFAULT(DataFacts, files, bytes, folders, fingerprint,
                                              failure, unknown, megabytes_per_second)
};

/// Examines the data in one process. `measures`: whether to measure the read rate of the first
/// file.
DataFacts examine_data(const std::string& spec, const std::string& data_dir, bool measures);

/// Collective. `spec`, `data_dir`: the values of --data and --data-dir. Throws Error (input) on all
/// ranks if `spec` is invalid on every rank.
Reports<DataFacts> measure_data(Ranks& ranks, const std::string& spec, const std::string& data_dir);

/// `data`. Skipped if `spec` is empty.
Outcome judge_data(const Reports<DataFacts>& reports, const std::string& spec);

}  // namespace lockstep::inline v0::apps::doctor
