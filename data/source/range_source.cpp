#include "data/source/range_source.h"

#include <utility>

#include "device/error.h"

namespace lockstep::data {

RangeSource::RangeSource(std::shared_ptr<const RecordSource> source, Range records, std::string word)
    : WrappedSource(std::move(source), std::move(word)), records_(records) {
  LOCKSTEP_CHECK(records.begin >= 0 && records.begin <= records.end && records.end <= this->source().size());
}

}  // namespace lockstep::data
