// All records of another source, several times.
#pragma once

#include "data/source/wrapped_source.h"

namespace lockstep::data {

/// Each time is an epoch of its own for what stands before it: epoch e of this source is epochs e * times to
/// e * times + times - 1 of those maps and recipes, so that they choose anew.
class RepeatedSource final : public WrappedSource {
 public:
  /// Throws Error (input) for less than one time, or for more records than can be counted.
  RepeatedSource(std::shared_ptr<const RecordSource> source, std::int64_t times);

  std::int64_t size() const override { return source().size() * times_; }
  void read(std::int64_t record_id, Sample& sample) const override;

 private:
  std::int64_t times_;
};

}  // namespace lockstep::data
