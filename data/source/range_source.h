// A run of the records of another source.
#pragma once

#include "data/order/batch_split.h"
#include "data/source/wrapped_source.h"

namespace lockstep::data {

class RangeSource final : public WrappedSource {
 public:
  /// Records [records.begin, records.end) of `source`, which has them.
  RangeSource(std::shared_ptr<const RecordSource> source, Range records, std::string word);

  std::int64_t size() const override { return records_.size(); }
  void read(std::int64_t record_id, Sample& sample) const override {
    source().read(records_.begin + record_id, sample);
  }

 private:
  Range records_;
};

}  // namespace lockstep::data
