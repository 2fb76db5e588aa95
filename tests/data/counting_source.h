// Records that contain their id, and the steps in which a stream delivers them.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/sample/record_source.h"
#include "lockstep/data/sample/sample.h"

namespace lockstep::inline v0::data {

/// Record i has features (i, 2i), label i % 5 and, on request, targets (i, i, i). Records from
/// `broken` on cannot be read.
class CountingSource : public RecordSource {
 public:
  explicit CountingSource(std::int64_t records, std::int64_t targets = 0, std::int64_t broken = -1)
      : RecordSource({.spec = targets > 0 ? SampleSpec::regression({2}, targets)
                                          : SampleSpec::classification({2}, 5),
                      .size = records,
                      .description = "counting"}),
        broken_(broken) {}

  void read(std::int64_t record_id, Sample& sample) const override {
    reads_.fetch_add(1);
    if (broken_ >= 0 && record_id >= broken_) {
      throw Error(ErrorCategory::data, "source", "expected a whole record",
                  "record " + std::to_string(record_id) + " is broken");
    }
    ASSERT_EQ(sample.features().size(), 2u);
    sample.features()[0] = static_cast<float>(record_id);
    sample.features()[1] = static_cast<float>(2 * record_id);
    if (spec().classes() > 0) sample.label() = static_cast<std::int32_t>(record_id % 5);
    for (float& target : sample.values()) target = static_cast<float>(record_id);
  }

  std::int64_t reads() const { return reads_; }

 private:
  std::int64_t broken_;
  mutable std::atomic<std::int64_t> reads_ = 0;
};

inline Dataset counting(std::int64_t records, std::int64_t global_batch) {
  return Dataset::from_source(std::make_shared<CountingSource>(records)).batch(global_batch);
}

/// The record ids of each step, over the parts of one process.
inline std::vector<std::vector<std::int64_t>> ids_of(const Dataset& dataset,
                                                     const StreamOptions& options) {
  const auto stream = dataset.stream(options);
  std::vector<std::vector<std::int64_t>> steps;
  for (std::vector<Batch> parts; stream->next(parts);) {
    steps.emplace_back();
    for (const Batch& part : parts)
      steps.back().insert(steps.back().end(), part.record_ids.begin(), part.record_ids.end());
  }
  return steps;
}

inline StreamOptions epochs(const Dataset& dataset, std::int64_t count) {
  StreamOptions options;
  options.last_step = dataset.steps_per_epoch() * count;
  return options;
}

}  // namespace lockstep::inline v0::data
