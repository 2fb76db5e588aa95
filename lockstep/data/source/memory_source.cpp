#include "lockstep/data/source/memory_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <span>
#include <type_traits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/random/random.h"

namespace lockstep::inline v0::data {
namespace {

constexpr const char* kWhere = "samples in memory";

ElementType type_of(const MemoryArray& array) {
  return std::visit(
      [](const auto& vector) {
        return element_type_of<typename std::decay_t<decltype(vector)>::value_type>();
      },
      array);
}

std::int64_t size_of(const MemoryArray& array) {
  return std::visit([](const auto& vector) { return static_cast<std::int64_t>(vector.size()); },
                    array);
}

std::vector<MemoryTensor> one_array(auto values) {
  std::vector<MemoryTensor> arrays;
  std::visit([&](auto& vector) { arrays.emplace_back(std::move(vector)); }, values);
  return arrays;
}

void require_fit(bool condition, const std::string& expected, const std::string& actual) {
  if (!condition) throw Error(ErrorCategory::input, kWhere, expected, actual);
}

}  // namespace

MemorySource::MemorySource(MemoryFeatures features, MemoryLabels labels, SampleSpec spec)
    : MemorySource(one_array(std::move(features)), one_array(std::move(labels)), std::move(spec)) {}

MemorySource::MemorySource(std::vector<MemoryTensor> inputs, std::vector<MemoryTensor> targets,
                           SampleSpec spec, std::vector<float> weights)
    : RecordSource({.spec = std::move(spec)}), weights_(std::move(weights)) {
  check_spec(info_.spec, kWhere);
  require_fit(
      inputs.size() == info_.spec.inputs.size() && targets.size() == info_.spec.targets.size(),
      fmt::format("expected {} and {}", counted(info_.spec.inputs.size(), "input"),
                  counted(info_.spec.targets.size(), "target")),
      fmt::format("got {} and {}", inputs.size(), targets.size()));
  const TensorSpec& first = info_.spec.inputs.front();
  info_.has_images = type_of(inputs.front().values) == ElementType::uint8 &&
                     first.type == ElementType::float32 && !first.is_ragged();
  if (first.is_ragged()) {
    info_.size = std::ssize(inputs.front().lengths);
  } else {
    const std::int64_t elements = size_of(inputs.front().values);
    require_fit(elements % first.elements() == 0,
                fmt::format("expected {} in multiples of {}, for records of [{}]", first.name,
                            first.elements(), fmt::join(first.shape, ", ")),
                fmt::format("got {}", elements));
    info_.size = elements / first.elements();
  }
  for (std::size_t i = 0; i < inputs.size(); ++i)
    inputs_.push_back(i == 0 && info_.has_images
                          ? Column{std::move(inputs[i].values)}
                          : checked(info_.spec.inputs[i], std::move(inputs[i]), 0));
  for (std::size_t i = 0; i < targets.size(); ++i)
    targets_.push_back(
        checked(info_.spec.targets[i], std::move(targets[i]), info_.spec.targets[i].first_class()));
  const std::size_t weight_count = info_.spec.weighted ? static_cast<std::size_t>(size()) : 0;
  require_fit(weights_.size() == weight_count, fmt::format("expected {} weights", weight_count),
              fmt::format("got {}", weights_.size()));
  const auto wrong = std::ranges::find_if_not(
      weights_, [](float weight) { return weight >= 0 && std::isfinite(weight); });
  if (wrong != weights_.end())
    throw Error(ErrorCategory::input, kWhere, "expected finite weights of 0 or more",
                fmt::format("record {} has {}", wrong - weights_.begin(), *wrong));
  info_.description =
      first.is_ragged()
          ? fmt::format("{} samples of {} in memory", size(), to_string(first))
          : fmt::format("{} {} of {} in memory", size(), info_.has_images ? "images" : "samples",
                        fmt::join(first.shape, "x"));
}

MemorySource::Column MemorySource::checked(const TensorSpec& spec, MemoryTensor tensor,
                                           std::int32_t first_class) const {
  require_fit(type_of(tensor.values) == spec.type,
              fmt::format("expected {} as {}", spec.name, to_string(spec.type)),
              fmt::format("got {}", to_string(type_of(tensor.values))));
  const auto lengths = static_cast<std::int64_t>(tensor.lengths.size());
  require_fit(
      lengths == (spec.is_ragged() ? size() : 0),
      fmt::format("expected {} of {} for {}", counted(spec.is_ragged() ? size() : 0, "length"),
                  to_string(spec), counted(size(), "record")),
      fmt::format("got {}", lengths));
  require_fit(std::ranges::all_of(tensor.lengths, [](std::int32_t length) { return length >= 0; }),
              fmt::format("expected lengths of 0 or more of {}", spec.name), "one is below 0");
  Column column{std::move(tensor.values), {}};
  std::int64_t elements = size() * spec.elements();
  if (spec.is_ragged()) {
    const std::int64_t unit = element_count(std::span(spec.shape).subspan(1));
    elements = 0;
    for (const std::int32_t length : tensor.lengths)
      column.ends.push_back(elements += length * unit);
  }
  require_fit(size_of(column.values) == elements,
              fmt::format("expected {} of {} for {}", counted(elements, "value"), spec.name,
                          counted(size(), "record")),
              fmt::format("got {}", size_of(column.values)));
  if (spec.classes == 0) return column;
  const auto& labels = std::get<std::vector<std::int32_t>>(column.values);
  const auto wrong = std::ranges::find_if(
      labels, [&](std::int32_t l) { return l < first_class || l >= spec.classes; });
  if (wrong == labels.end()) return column;
  const std::int64_t record =
      spec.is_ragged()
          ? std::ranges::upper_bound(column.ends, wrong - labels.begin()) - column.ends.begin()
          : (wrong - labels.begin()) / spec.elements();
  throw Error(ErrorCategory::data, fmt::format("{}: record {}", kWhere, record),
              fmt::format("expected a {} from {} to {}", spec.name, first_class, spec.classes - 1),
              fmt::format("it is {}", *wrong));
}

void MemorySource::copy(const Column& column, std::int64_t record_id, TensorView& view) {
  const auto id = static_cast<std::size_t>(record_id);
  std::size_t first = id * view.elements;
  if (view.unit > 0) {
    first = id == 0 ? 0 : static_cast<std::size_t>(column.ends[id - 1]);
    view.set_length((static_cast<std::size_t>(column.ends[id]) - first) / view.unit);
  }
  std::visit(
      [&]<typename T>(const std::vector<T>& values) {
        std::ranges::copy(std::span(values).subspan(first, view.elements), view.as<T>().begin());
      },
      column.values);
}

void MemorySource::read(std::int64_t record_id, Sample& sample) const {
  if (info_.has_images)
    sample.set_image_view(std::span(std::get<std::vector<std::uint8_t>>(inputs_.front().values))
                              .subspan(static_cast<std::size_t>(record_id * spec().feature_count()),
                                       static_cast<std::size_t>(spec().feature_count())));
  for (std::size_t i = info_.has_images ? 1 : 0; i < inputs_.size(); ++i)
    copy(inputs_[i], record_id, sample.inputs[i]);
  for (std::size_t i = 0; i < targets_.size(); ++i) copy(targets_[i], record_id, sample.targets[i]);
  if (spec().weighted) sample.weight = weights_[static_cast<std::size_t>(record_id)];
}

namespace {

constexpr const char* kGenerator = "generator";

[[noreturn]] void fail(std::int64_t record_id, std::string_view expected, std::string_view actual) {
  throw Error(ErrorCategory::data, fmt::format("{}: record {}", kGenerator, record_id), expected,
              actual);
}

}  // namespace

GeneratorSource::GeneratorSource(SampleSpec spec, std::int64_t count, SampleGenerator generate)
    : RecordSource({.spec = std::move(spec),
                    .size = count,
                    .description = fmt::format("{} generated samples", count)}),
      generate_(std::move(generate)) {
  check_spec(info_.spec, kGenerator);
  if (count < 0)
    throw Error(ErrorCategory::input, kGenerator, "expected 0 or more records",
                fmt::format("got {}", count));
  if (!generate_)
    throw Error(ErrorCategory::input, kGenerator, "expected a function that generates records",
                "it is empty");
}

namespace {

/// The initial values of a sample, which a generator may leave unchanged.
void clear_tensors(std::span<const TensorSpec> specs, std::vector<TensorView>& tensors) {
  for (std::size_t i = 0; i < specs.size(); ++i)
    if (specs[i].is_ragged())
      tensors[i].set_length(0);
    else if (specs[i].classes > 0)
      std::ranges::fill(tensors[i].as<std::int32_t>(), 0);
}

void check_classes(std::span<const TensorSpec> specs, const std::vector<TensorView>& tensors,
                   std::int64_t record_id, bool are_targets) {
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].classes == 0) continue;
    const std::int32_t first = are_targets ? specs[i].first_class() : 0;
    for (const std::int32_t label : tensors[i].as<std::int32_t>())
      if (label < first || label >= specs[i].classes)
        fail(record_id,
             fmt::format("expected a {} from {} to {}", specs[i].name, first, specs[i].classes - 1),
             fmt::format("it is {}", label));
  }
}

}  // namespace

void GeneratorSource::read(std::int64_t record_id, Sample& sample) const {
  clear_tensors(spec().inputs, sample.inputs);
  clear_tensors(spec().targets, sample.targets);
  try {
    generate_(record_id, sample);
  } catch (const std::exception& error) {
    fail(record_id, "expected a sample", fmt::format("its function threw: {}", error.what()));
  } catch (...) {
    fail(record_id, "expected a sample",
         "its function threw an exception that is not a std::exception");
  }
  check_classes(spec().inputs, sample.inputs, record_id, false);
  check_classes(spec().targets, sample.targets, record_id, true);
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
    : RecordSource({.spec = SampleSpec::classification(options.shape, options.classes),
                    .size = options.count,
                    .description = fmt::format("{} synthetic {} of {}", options.count,
                                               options.images ? "images" : "samples",
                                               fmt::join(options.shape, "x")),
                    .has_images = options.images}) {
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
  pattern_size_ = std::min(static_cast<std::size_t>(spec().feature_count()), kLongestPattern);
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
  const auto label =
      static_cast<std::int32_t>(words[0] % static_cast<std::uint64_t>(spec().classes()));
  sample.label() = label;
  const std::size_t pattern_at = static_cast<std::size_t>(label) * pattern_size_;
  const std::size_t noise_at = words[1] % kNoiseFloats;
  if (!info_.has_images)
    return add_up(std::span(patterns_).subspan(pattern_at, pattern_size_), noise_, noise_at,
                  sample.features());
  const auto draw = [&](std::span<std::uint8_t> pixels) {
    add_up(std::span(pixel_patterns_).subspan(pattern_at, pattern_size_), pixel_noise_, noise_at,
           pixels);
  };
  if (sample.image != nullptr) return draw(sample.image->allocate(spec().feature_count()));
  if (!sample.pixels().empty()) return draw(sample.pixels());
  std::vector<std::uint8_t> image(spec().feature_count());
  draw(image);
  sample.set_image(image);
}

}  // namespace lockstep::inline v0::data
