// The records of several sources, one source after the other.
#pragma once

#include "data/source/joined_source.h"

namespace lockstep::data {

class ConcatenatedSource final : public JoinedSource {
 public:
  /// At least one input. Throws Error (input) where their samples differ.
  explicit ConcatenatedSource(std::vector<std::shared_ptr<const RecordSource>> inputs);

  void read(std::int64_t record_id, Sample& sample) const override;

 private:
  std::vector<std::int64_t> ends_;  // of each input, in ids of this source
};

}  // namespace lockstep::data
