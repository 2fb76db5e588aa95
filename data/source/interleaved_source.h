// The records of several sources, blocks of them in turn.
#pragma once

#include "data/order/interleave_order.h"
#include "data/source/joined_source.h"

namespace lockstep::data {

class InterleavedSource final : public JoinedSource {
 public:
  /// Throws Error (input) without inputs, where their samples differ, and for a cycle or a block of less than 1.
  InterleavedSource(std::vector<std::shared_ptr<const RecordSource>> inputs, std::int64_t cycle_length,
                    std::int64_t block_length);

  void read(std::int64_t record_id, Sample& sample) const override;

 private:
  InterleaveOrder order_;
};

}  // namespace lockstep::data
