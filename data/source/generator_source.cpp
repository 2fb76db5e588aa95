#include "data/source/generator_source.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "device/error.h"

namespace lockstep::data {
namespace {

constexpr const char* kWhere = "generator";

[[noreturn]] void fail(std::int64_t record_id, std::string_view needed, std::string_view given) {
  throw Error(ErrorCategory::data, fmt::format("{}: record {}", kWhere, record_id), needed, given);
}

}  // namespace

GeneratorSource::GeneratorSource(SampleSpec spec, std::int64_t count, SampleGenerator generate)
    : spec_(std::move(spec)), count_(count), generate_(std::move(generate)) {
  check_spec(spec_, kWhere);
  if (count < 0)
    throw Error(ErrorCategory::input, kWhere, "needed a number of records from 0", fmt::format("{} was given", count));
  if (!generate_) throw Error(ErrorCategory::input, kWhere, "needed a function that makes records", "it is empty");
}

void GeneratorSource::read(std::int64_t record_id, Sample& sample) const {
  try {
    generate_(record_id, sample);
  } catch (const std::exception& error) {
    fail(record_id, "needed a sample", fmt::format("its function says: {}", error.what()));
  } catch (...) {
    fail(record_id, "needed a sample", "its function threw something that is no std::exception");
  }
  if (spec_.classes > 0 && (sample.label < 0 || sample.label >= spec_.classes))
    fail(record_id, fmt::format("needed a label from 0 to {}", spec_.classes - 1),
         fmt::format("it is {}", sample.label));
}

std::string GeneratorSource::description() const { return fmt::format("{} generated samples", count_); }

}  // namespace lockstep::data
