#include "data/source/concatenated_source.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace lockstep::data {

ConcatenatedSource::ConcatenatedSource(std::vector<std::shared_ptr<const RecordSource>> inputs)
    : JoinedSource(std::move(inputs), "concatenate", "one after the other"), ends_(sizes()) {
  std::partial_sum(ends_.begin(), ends_.end(), ends_.begin());
}

void ConcatenatedSource::read(std::int64_t record_id, Sample& sample) const {
  const auto input = static_cast<std::size_t>(std::ranges::upper_bound(ends_, record_id) - ends_.begin());
  read_of(input, input == 0 ? record_id : record_id - ends_[input - 1], sample);
}

}  // namespace lockstep::data
