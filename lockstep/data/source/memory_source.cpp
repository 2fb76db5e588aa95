#include "lockstep/data/source/memory_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <span>
#include <type_traits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/random.h"

namespace lockstep::data {
namespace {

constexpr const char* kWhere = "samples in memory";

template <typename T>
std::span<const T> record_of(const std::vector<T>& all, std::int64_t record_id, std::int64_t size) {
  return std::span(all).subspan(record_id * size, static_cast<std::size_t>(size));
}

template <typename Variant>
std::int64_t size_of(const Variant& values) {
  return std::visit([](const auto& vector) { return static_cast<std::int64_t>(vector.size()); },
                    values);
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
                fmt::format("expected features in multiples of {}, for records of [{}]",
                            spec_.feature_count(), fmt::join(spec_.shape, ", ")),
                fmt::format("got {}", features));
  const bool are_classes = std::holds_alternative<std::vector<std::int32_t>>(labels_);
  if (are_classes != (spec_.classes > 0))
    throw Error(ErrorCategory::input, kWhere,
                spec_.classes > 0 ? "expected int32 class numbers"
                                  : fmt::format("expected {} float targets", spec_.targets),
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
  const auto wrong =
      std::ranges::find_if(labels, [&](std::int32_t l) { return l < 0 || l >= spec_.classes; });
  if (wrong != labels.end())
    throw Error(ErrorCategory::data, fmt::format("{}: record {}", kWhere, wrong - labels.begin()),
                fmt::format("expected a label from 0 to {}", spec_.classes - 1),
                fmt::format("it is {}", *wrong));
}

void MemorySource::read(std::int64_t record_id, Sample& sample) const {
  if (const auto* floats = std::get_if<std::vector<float>>(&features_))
    std::ranges::copy(record_of(*floats, record_id, spec_.feature_count()),
                      sample.features.begin());
  else
    sample.set_image(record_of(std::get<std::vector<std::uint8_t>>(features_), record_id,
                               spec_.feature_count()));
  if (const auto* classes = std::get_if<std::vector<std::int32_t>>(&labels_))
    sample.label = (*classes)[record_id];
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
  throw Error(ErrorCategory::data, fmt::format("{}: record {}", kGenerator, record_id), expected,
              actual);
}

}  // namespace

GeneratorSource::GeneratorSource(SampleSpec spec, std::int64_t count, SampleGenerator generate)
    : spec_(std::move(spec)), count_(count), generate_(std::move(generate)) {
  check_spec(spec_, kGenerator);
  if (count < 0)
    throw Error(ErrorCategory::input, kGenerator, "expected 0 or more records",
                fmt::format("got {}", count));
  if (!generate_)
    throw Error(ErrorCategory::input, kGenerator, "expected a function that generates records",
                "it is empty");
}

void GeneratorSource::read(std::int64_t record_id, Sample& sample) const {
  try {
    generate_(record_id, sample);
  } catch (const std::exception& error) {
    fail(record_id, "expected a sample", fmt::format("its function threw: {}", error.what()));
  } catch (...) {
    fail(record_id, "expected a sample",
         "its function threw an exception that is not a std::exception");
  }
  if (spec_.classes > 0 && (sample.label < 0 || sample.label >= spec_.classes))
    fail(record_id, fmt::format("expected a label from 0 to {}", spec_.classes - 1),
         fmt::format("it is {}", sample.label));
}

std::string GeneratorSource::description() const {
  return fmt::format("{} generated samples", count_);
}

namespace {

constexpr std::size_t kLongestPattern = 4096;
constexpr std::size_t kNoiseFloats = std::size_t{1} << 16;

/// Fills `values` with floats in [0, 0.5).
void fill_half_unit(std::span<float> values, std::uint64_t key) {
  const Philox generator(key);
  for (std::size_t i = 0; i < values.size(); i += 4) {
    const auto words = generator.block(0, i);
    for (std::size_t j = i; j < std::min(i + 4, values.size()); ++j)
      values[j] = 0.5f * to_unit_float(words[j - i]);
  }
}

// Below 128, so that two of them add up to a pixel.
std::vector<std::uint8_t> as_pixels(std::span<const float> halves) {
  std::vector<std::uint8_t> pixels(halves.size());
  std::ranges::transform(halves, pixels.begin(),
                         [](float half) { return static_cast<std::uint8_t>(256.0f * half); });
  return pixels;
}

/// values[i] = pattern[i] + noise[start + i], both read cyclically.
template <typename T>
void add_up(std::span<const std::type_identity_t<T>> pattern, const std::vector<T>& noise,
            std::size_t start, std::span<T> values) {
  std::size_t in_noise = start;
  std::size_t in_pattern = 0;
  for (std::size_t done = 0; done < values.size();) {
    const std::size_t run =
        std::min({values.size() - done, pattern.size() - in_pattern, noise.size() - in_noise});
    for (std::size_t i = 0; i < run; ++i)
      values[done + i] = static_cast<T>(pattern[in_pattern + i] + noise[in_noise + i]);
    done += run;
    in_pattern = (in_pattern + run) % pattern.size();
    in_noise = (in_noise + run) % noise.size();
  }
}

void check_positive(std::int64_t value, const char* what) {
  if (value < 1) {
    throw Error(ErrorCategory::input, "synthetic data", fmt::format("expected at least 1 {}", what),
                fmt::format("got {}", value));
  }
}

}  // namespace

SyntheticSource::SyntheticSource(const SyntheticOptions& options)
    : spec_{options.shape, options.classes, 0}, count_(options.count) {
  if (options.shape.empty())
    throw Error(ErrorCategory::input, "synthetic data", "expected a shape",
                "the shape has no dimensions");
  for (const std::int64_t extent : options.shape)
    check_positive(extent, "element in every dimension");
  check_shape(options.shape, "synthetic data");
  if (options.images && (options.shape.size() != 3 || options.shape.back() > 4))
    throw Error(ErrorCategory::input, "synthetic data",
                "expected a shape HxWxC of 1 to 4 channels for images",
                fmt::format("got {}", fmt::join(options.shape, "x")));
  check_positive(options.classes, "class");
  check_positive(options.count, "record");
  record_key_ = random_key(options.seed, "synthetic records " + options.part);
  pattern_size_ = std::min(static_cast<std::size_t>(spec_.feature_count()), kLongestPattern);
  patterns_.resize(pattern_size_ * static_cast<std::size_t>(options.classes));
  fill_half_unit(patterns_, random_key(options.seed, "synthetic patterns"));
  noise_.resize(kNoiseFloats);
  fill_half_unit(noise_, random_key(options.seed, "synthetic noise"));
  if (!options.images) return;
  pixel_patterns_ = as_pixels(std::exchange(patterns_, {}));
  pixel_noise_ = as_pixels(std::exchange(noise_, {}));
}

void SyntheticSource::read(std::int64_t record_id, Sample& sample) const {
  const auto words = Philox(record_key_).block(0, static_cast<std::uint64_t>(record_id));
  sample.label = static_cast<std::int32_t>(words[0] % static_cast<std::uint64_t>(spec_.classes));
  const std::size_t pattern_at = static_cast<std::size_t>(sample.label) * pattern_size_;
  const std::size_t noise_at = words[1] % kNoiseFloats;
  if (!has_images())
    return add_up(std::span(patterns_).subspan(pattern_at, pattern_size_), noise_, noise_at,
                  sample.features);
  const auto draw = [&](std::span<std::uint8_t> pixels) {
    add_up(std::span(pixel_patterns_).subspan(pattern_at, pattern_size_), pixel_noise_, noise_at,
           pixels);
  };
  if (sample.images == nullptr && !sample.pixels.empty()) return draw(sample.pixels);
  std::vector<std::uint8_t> image(spec_.feature_count());
  draw(image);
  sample.set_image(image);
}

std::string SyntheticSource::description() const {
  return fmt::format("{} synthetic {} of {}", count_, has_images() ? "images" : "samples",
                     fmt::join(spec_.shape, "x"));
}

}  // namespace lockstep::data
