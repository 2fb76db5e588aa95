// Those records of another source that a predicate is true for.
#pragma once

#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "data/source/wrapped_source.h"

namespace lockstep::data {

class FilteredSource final : public WrappedSource {
 public:
  /// Reads every record once, by `threads` threads, as it is in epoch 0 of seed 0, and keeps the ids of those that
  /// `keep` is true for: 4 bytes each, 8 where `source` has 2^32 records or more. Throws the first error in the order
  /// of the records.
  FilteredSource(std::shared_ptr<const RecordSource> source, const SamplePredicate& keep, int threads);

  std::int64_t size() const override;
  void read(std::int64_t record_id, Sample& sample) const override;

 private:
  std::variant<std::vector<std::uint32_t>, std::vector<std::int64_t>> ids_;
};

}  // namespace lockstep::data
