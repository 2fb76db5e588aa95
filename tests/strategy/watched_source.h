// A source that counts reads, and damages some records.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/sample/record_source.h"
#include "tests/strategy/training.h"

namespace lockstep::inline v0::train {
using namespace strategy;

/// Generated samples. Counts the reads of each record, and damages selected ones.
class WatchedSource final : public data::RecordSource {
 public:
  explicit WatchedSource(std::int64_t records)
      : source_(small_data(records)), visits_(static_cast<std::size_t>(records)) {
    info_ = {.spec = source_.spec(), .size = records, .description = "watched samples"};
  }

  void read(std::int64_t id, data::Sample& sample) const override {
    source_.source().read(id, sample);
    ++visits_[static_cast<std::size_t>(id)];
    if (id == infinite) sample.features()[0] = std::numeric_limits<float>::infinity();
    if (id == damaged)
      throw Error(ErrorCategory::data, "watched", "expected a whole record",
                  "record " + std::to_string(id) + " is damaged");
  }
  std::vector<int> visits() const { return {visits_.begin(), visits_.end()}; }

  std::int64_t infinite = -1;
  std::int64_t damaged = -1;

 private:
  data::Dataset source_;
  mutable std::vector<std::atomic<int>> visits_;
};

}  // namespace lockstep::inline v0::train
