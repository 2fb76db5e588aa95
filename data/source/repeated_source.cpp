#include "data/source/repeated_source.h"

#include <fmt/format.h>

#include <utility>

#include "device/error.h"

namespace lockstep::data {

RepeatedSource::RepeatedSource(std::shared_ptr<const RecordSource> source, std::int64_t times)
    : WrappedSource(std::move(source), fmt::format("{} times", times)), times_(times) {
  if (times < 1)
    throw Error(ErrorCategory::input, "repeat",
                "needed at least 1 time (a stream without a last step repeats its epochs without end)",
                fmt::format("{} was given", times));
  if (std::int64_t records = 0; __builtin_mul_overflow(this->source().size(), times, &records))
    throw Error(ErrorCategory::input, "repeat", "needed fewer than 2^63 records",
                fmt::format("{} times {} were asked for", times, this->source().size()));
}

void RepeatedSource::read(std::int64_t record_id, Sample& sample) const {
  sample.epoch = sample.epoch * times_ + record_id / source().size();
  source().read(record_id % source().size(), sample);
}

}  // namespace lockstep::data
