// Whether an epoch has seen every record as often as it should.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/allreduce/communicator.h"
#include "lockstep/data/dataset.h"

namespace lockstep::strategy {

/// The records that replicas of this process have taken in an epoch: how many, and a sum over their ids that does not
/// depend on who takes which when. Summed over all ranks it is compared with that of the data set.
class RecordAccount {
 public:
  void add(const std::vector<data::Batch>& parts);  ///< notes the records of these parts of a global batch
  void clear() { *this = {}; }                      ///< begins a new epoch

  /// Whether all ranks together took each of the records 0 .. `records`-1 `times` times. Each rank hashes its share of
  /// the ids. Collective.
  bool is_complete(const allreduce::Communicator& ranks, std::int64_t records, std::int64_t times) const;

 private:
  std::uint64_t count_ = 0;
  std::uint64_t sum_ = 0;
};

/// Bad records of one file.
struct BadFile {
  std::string file;          ///< empty where the records are not in files
  std::int64_t records = 0;  ///< that could not be read
  std::string first;         ///< what is wrong with the first of them

  bool operator==(const BadFile&) const = default;
};

/// The records that any rank could not read, each once, by files of `source`. Throws the same Error (data) on all ranks
/// for more than `limit` of them. Collective.
std::vector<BadFile> gather_bad_records(const allreduce::Communicator& ranks, const data::RecordSource& source,
                                        const std::vector<data::BadRecord>& mine, std::int64_t limit);

}  // namespace lockstep::strategy
