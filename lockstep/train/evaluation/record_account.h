// Verification that an epoch has seen every record the expected number of times, and the report of
// bad records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "lockstep/allreduce/communicator.h"
#include "lockstep/data/record/record_error.h"
#include "lockstep/data/sample/batch.h"
#include "lockstep/train/callbacks/callback.h"

namespace lockstep::inline v0::train {

/// Count and hash sum of the records that replicas of this process have read in an epoch. The sum
/// over all ranks does not depend on the order or the distribution of records, and is compared with
/// that of the data set.
class RecordAccount {
 public:
  /// Adds the records of these parts of a global batch.
  void add(const std::vector<data::Batch>& parts);
  void clear() { *this = {}; }  ///< starts a new epoch

  /// Whether all ranks together read each of the records 0 .. `records`-1 `times` times. Each rank
  /// hashes its share of the ids. Collective.
  bool is_complete(const allreduce::Communicator& ranks, std::int64_t records,
                   std::int64_t times) const;

 private:
  std::uint64_t count_ = 0;
  std::uint64_t sum_ = 0;
};

/// Serializes ids and problems for unpack_bad_records(), which adds them to a map.
void pack_bad_records(const std::vector<data::BadRecord>& records, std::vector<std::byte>& bytes);
void unpack_bad_records(std::span<const std::byte> bytes,
                        std::map<std::int64_t, std::string>& records);

/// The bad records of all ranks without duplicates, grouped by files of `source`. Throws the same
/// Error (data) on all ranks if there are more than `limit`. Collective.
std::vector<BadFile> gather_bad_records(const allreduce::Communicator& ranks,
                                        const data::RecordSource& source,
                                        const std::vector<data::BadRecord>& mine,
                                        std::int64_t limit);

}  // namespace lockstep::inline v0::train
