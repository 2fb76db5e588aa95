#include "lockstep/data/source/memory_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <span>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

constexpr const char* kWhere = "samples in memory";

template <typename T>
std::span<const T> record_of(const std::vector<T>& all, std::int64_t record_id, std::int64_t size) {
  return std::span(all).subspan(static_cast<std::size_t>(record_id * size), static_cast<std::size_t>(size));
}

template <typename Variant>
std::int64_t size_of(const Variant& values) {
  return std::visit([](const auto& vector) { return static_cast<std::int64_t>(vector.size()); }, values);
}

}  // namespace

MemorySource::MemorySource(MemoryFeatures features, MemoryLabels labels, SampleSpec spec)
    : features_(std::move(features)), labels_(std::move(labels)), spec_(std::move(spec)) {
  check_spec(spec_, kWhere);
  check_sizes();
  records_ = size_of(features_) / spec_.feature_count();
  check_classes();
}

void MemorySource::check_sizes() const {
  const std::int64_t features = size_of(features_);
  if (features % spec_.feature_count() != 0)
    throw Error(ErrorCategory::input, kWhere,
                fmt::format("expected features in multiples of {}, for records of [{}]", spec_.feature_count(),
                            fmt::join(spec_.shape, ", ")),
                fmt::format("got {}", features));
  const bool are_classes = std::holds_alternative<std::vector<std::int32_t>>(labels_);
  if (are_classes != (spec_.classes > 0))
    throw Error(
        ErrorCategory::input, kWhere,
        spec_.classes > 0 ? "expected int32 class numbers" : fmt::format("expected {} float targets", spec_.targets),
        are_classes ? "got class numbers" : "got floats");
  const std::int64_t records = features / spec_.feature_count();
  const std::int64_t expected = records * (are_classes ? 1 : spec_.targets);
  if (size_of(labels_) != expected)
    throw Error(ErrorCategory::input, kWhere,
                fmt::format("expected {} {} for the features of {} records", expected,
                            are_classes ? "labels" : "targets", records),
                fmt::format("got {}", size_of(labels_)));
}

void MemorySource::check_classes() const {
  if (spec_.classes == 0) return;
  const auto& labels = std::get<std::vector<std::int32_t>>(labels_);
  const auto wrong = std::ranges::find_if(labels, [&](std::int32_t l) { return l < 0 || l >= spec_.classes; });
  if (wrong != labels.end())
    throw Error(ErrorCategory::data, fmt::format("{}: record {}", kWhere, wrong - labels.begin()),
                fmt::format("expected a label from 0 to {}", spec_.classes - 1), fmt::format("it is {}", *wrong));
}

void MemorySource::read(std::int64_t record_id, Sample& sample) const {
  if (const auto* floats = std::get_if<std::vector<float>>(&features_))
    std::ranges::copy(record_of(*floats, record_id, spec_.feature_count()), sample.features.begin());
  else
    sample.set_image(record_of(std::get<std::vector<std::uint8_t>>(features_), record_id, spec_.feature_count()));
  if (const auto* classes = std::get_if<std::vector<std::int32_t>>(&labels_))
    sample.label = (*classes)[static_cast<std::size_t>(record_id)];
  else
    std::ranges::copy(record_of(std::get<std::vector<float>>(labels_), record_id, spec_.targets),
                      sample.targets.begin());
}

std::string MemorySource::description() const {
  return fmt::format("{} {} of {} in memory", records_, has_images() ? "images" : "samples",
                     fmt::join(spec_.shape, "x"));
}

namespace {

constexpr const char* kGenerator = "generator";

[[noreturn]] void fail(std::int64_t record_id, std::string_view expected, std::string_view actual) {
  throw Error(ErrorCategory::data, fmt::format("{}: record {}", kGenerator, record_id), expected, actual);
}

}  // namespace

GeneratorSource::GeneratorSource(SampleSpec spec, std::int64_t count, SampleGenerator generate)
    : spec_(std::move(spec)), count_(count), generate_(std::move(generate)) {
  check_spec(spec_, kGenerator);
  if (count < 0)
    throw Error(ErrorCategory::input, kGenerator, "expected 0 or more records", fmt::format("got {}", count));
  if (!generate_)
    throw Error(ErrorCategory::input, kGenerator, "expected a function that generates records", "it is empty");
}

void GeneratorSource::read(std::int64_t record_id, Sample& sample) const {
  try {
    generate_(record_id, sample);
  } catch (const std::exception& error) {
    fail(record_id, "expected a sample", fmt::format("its function threw: {}", error.what()));
  } catch (...) {
    fail(record_id, "expected a sample", "its function threw an exception that is not a std::exception");
  }
  if (spec_.classes > 0 && (sample.label < 0 || sample.label >= spec_.classes))
    fail(record_id, fmt::format("expected a label from 0 to {}", spec_.classes - 1),
         fmt::format("it is {}", sample.label));
}

std::string GeneratorSource::description() const { return fmt::format("{} generated samples", count_); }

}  // namespace lockstep::data
