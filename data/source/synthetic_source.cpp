#include "data/source/synthetic_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>

#include "device/error.h"
#include "device/random.h"

namespace lockstep::data {
namespace {

constexpr std::size_t kLongestPattern = 4096;
constexpr std::size_t kNoiseFloats = std::size_t{1} << 16;

/// Fills `values` with floats in [0, 0.5).
void fill_half_unit(std::span<float> values, std::uint64_t key) {
  const device::Philox generator(key);
  for (std::size_t i = 0; i < values.size(); i += 4) {
    const auto words = generator.block(0, i);
    for (std::size_t j = i; j < std::min(i + 4, values.size()); ++j)
      values[j] = 0.5f * device::to_unit_float(words[j - i]);
  }
}

void check_positive(std::int64_t value, const char* what) {
  if (value < 1) {
    throw Error(ErrorCategory::input, "synthetic data", fmt::format("needed at least 1 {}", what),
                fmt::format("{} was given", value));
  }
}

}  // namespace

SyntheticSource::SyntheticSource(const SyntheticOptions& options)
    : spec_{options.shape, options.classes, 0}, count_(options.count) {
  if (options.shape.empty())
    throw Error(ErrorCategory::input, "synthetic data", "needed a shape", "it has no dimension");
  for (const std::int64_t extent : options.shape) check_positive(extent, "element in every dimension");
  check_positive(options.classes, "class");
  check_positive(options.count, "record");
  record_key_ = device::random_key(options.seed, "synthetic records " + options.part);
  pattern_size_ = std::min(static_cast<std::size_t>(spec_.feature_count()), kLongestPattern);
  patterns_.resize(pattern_size_ * static_cast<std::size_t>(options.classes));
  fill_half_unit(patterns_, device::random_key(options.seed, "synthetic patterns"));
  noise_.resize(kNoiseFloats);
  fill_half_unit(noise_, device::random_key(options.seed, "synthetic noise"));
}

void SyntheticSource::read(std::int64_t record_id, Sample& sample) const {
  const auto words = device::Philox(record_key_).block(0, static_cast<std::uint64_t>(record_id));
  sample.label = static_cast<std::int32_t>(words[0] % static_cast<std::uint64_t>(spec_.classes));
  const float* const pattern = patterns_.data() + static_cast<std::size_t>(sample.label) * pattern_size_;
  std::size_t in_noise = words[1] % kNoiseFloats;
  std::size_t in_pattern = 0;
  for (std::size_t done = 0; done < sample.features.size();) {
    const std::size_t run =
        std::min({sample.features.size() - done, pattern_size_ - in_pattern, kNoiseFloats - in_noise});
    for (std::size_t i = 0; i < run; ++i) sample.features[done + i] = pattern[in_pattern + i] + noise_[in_noise + i];
    done += run;
    in_pattern = (in_pattern + run) % pattern_size_;
    in_noise = (in_noise + run) % kNoiseFloats;
  }
}

std::string SyntheticSource::description() const {
  return fmt::format("{} synthetic samples of {}", count_, fmt::join(spec_.shape, "x"));
}

}  // namespace lockstep::data
