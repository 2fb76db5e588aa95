#include "data/source/interleaved_source.h"

#include <fmt/format.h>

#include <utility>

#include "device/error.h"

namespace lockstep::data {
namespace {

constexpr const char* kWord = "interleave";

std::vector<std::shared_ptr<const RecordSource>> checked(std::vector<std::shared_ptr<const RecordSource>> inputs,
                                                         std::int64_t cycle_length, std::int64_t block_length) {
  const auto require = [](std::int64_t given, std::string_view needed) {
    if (given < 1) throw Error(ErrorCategory::input, kWord, needed, fmt::format("{} was given", given));
  };
  require(static_cast<std::int64_t>(inputs.size()), "needed at least 1 data set");
  require(cycle_length, "needed a cycle of at least 1 data set");
  require(block_length, "needed blocks of at least 1 record");
  return inputs;
}

}  // namespace

InterleavedSource::InterleavedSource(std::vector<std::shared_ptr<const RecordSource>> inputs, std::int64_t cycle_length,
                                     std::int64_t block_length)
    : JoinedSource(checked(std::move(inputs), cycle_length, block_length), kWord,
                   fmt::format("interleaved, {} at a time, in blocks of {}", cycle_length, block_length)),
      order_(sizes(), cycle_length, block_length) {}

void InterleavedSource::read(std::int64_t record_id, Sample& sample) const {
  const InterleaveOrder::Place place = order_[record_id];
  read_of(place.input, place.index, sample);
}

}  // namespace lockstep::data
