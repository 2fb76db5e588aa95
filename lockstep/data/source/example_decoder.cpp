#include "lockstep/data/source/example_decoder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>
#include <utility>

#include "lockstep/data/image/image.h"

namespace lockstep::data {
namespace {

ImageRecipe recipe_as_stored(const SampleSpec& spec) {
  LOCKSTEP_CHECK_OP(spec.shape.size(), ==, 3U);
  return ImageRecipe::parse("none", static_cast<int>(spec.shape[0]), static_cast<int>(spec.shape[1]),
                            static_cast<int>(spec.shape[2]));
}

std::span<const std::uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

std::string values_of(const FeatureView& feature) {
  return fmt::format("it has {} value{} of kind {}", feature.size(), feature.size() == 1 ? "" : "s",
                     feature_kind_name(feature.kind()));
}

}  // namespace

ExampleDecoder::ExampleDecoder(SampleSpec spec, InputKind input, std::string input_feature, std::string label_feature)
    : spec_(std::move(spec)),
      count_(static_cast<std::size_t>(spec_.feature_count())),
      input_(input),
      names_{std::move(input_feature), std::move(label_feature)} {
  if (input == InputKind::encoded_image) as_stored_.emplace(recipe_as_stored(spec_));
}

std::optional<SampleProblem> ExampleDecoder::decode(std::string_view record, Sample& sample) const {
  try {
    std::array<FeatureView, 2> found;
    find_features(record, names_, found);
    for (std::size_t i = 0; i < names_.size(); ++i) {
      if (found[i].kind() == FeatureKind::missing) {
        return SampleProblem{fmt::format("expected the feature {}", names_[i]),
                             "the record has " + feature_list(record)};
      }
    }
    if (auto problem = decode_input(found[0], sample)) return problem;
    return decode_label(found[1], sample);
  } catch (const MalformedExample& error) {
    return SampleProblem{"expected a tf.train.Example", error.what()};
  } catch (const Error& error) {
    return SampleProblem{fmt::format("expected a usable image in {}", input_feature()), error.what()};
  }
}

std::optional<SampleProblem> ExampleDecoder::decode_input(const FeatureView& feature, Sample& sample) const {
  if (input_ == InputKind::floats) {
    if (feature.kind() != FeatureKind::floats || feature.size() != count_)
      return SampleProblem{
          fmt::format("expected {} floats in {} for shape [{}]", count_, input_feature(), fmt::join(spec_.shape, ", ")),
          values_of(feature)};
    feature.copy_floats(sample.features);
    return std::nullopt;
  }
  const auto bytes = feature.single_bytes();
  if (input_ == InputKind::encoded_image) {
    if (!bytes)
      return SampleProblem{fmt::format("expected a JPEG or PNG image in {}", input_feature()), values_of(feature)};
    decode_image(*bytes, sample);
    return std::nullopt;
  }
  if (bytes && bytes->size() == count_) {
    sample.set_image(bytes_of(*bytes));
    return std::nullopt;
  }
  return SampleProblem{
      fmt::format("expected {} raw bytes in {} for shape [{}]", count_, input_feature(), fmt::join(spec_.shape, ", ")),
      bytes ? fmt::format("it has {} bytes", bytes->size()) : values_of(feature)};
}

void ExampleDecoder::decode_image(std::string_view bytes, Sample& sample) const {
  thread_local ImageScratch scratch;
  if (sample.images != nullptr)
    sample.images->take_encoded(bytes_of(bytes), sample);
  else if (!sample.pixels.empty())
    as_stored_->apply(bytes_of(bytes), {}, sample.pixels, scratch);
  else
    as_stored_->apply(bytes_of(bytes), {}, sample.features, scratch);
}

std::optional<SampleProblem> ExampleDecoder::decode_label(const FeatureView& feature, Sample& sample) const {
  if (spec_.classes == 0) {
    if (feature.kind() == FeatureKind::floats && feature.size() == sample.targets.size()) {
      feature.copy_floats(sample.targets);
      return std::nullopt;
    }
    return SampleProblem{fmt::format("expected {} floats in {}", spec_.targets, label_feature()), values_of(feature)};
  }
  const auto label = feature.single_int64();
  if (!label) return SampleProblem{fmt::format("expected one integer in {}", label_feature()), values_of(feature)};
  if (*label < 0 || *label >= spec_.classes) {
    return SampleProblem{fmt::format("expected a label from 0 to {} in {}", spec_.classes - 1, label_feature()),
                         fmt::format("it is {}", *label)};
  }
  sample.label = static_cast<std::int32_t>(*label);
  return std::nullopt;
}

std::optional<SampleProblem> read_class(std::string_view record, const std::string& label_feature,
                                        std::int64_t& label) {
  try {
    FeatureView feature;
    find_features(record, {&label_feature, 1}, {&feature, 1});
    const auto value = feature.single_int64();
    if (!value) return SampleProblem{fmt::format("expected one integer in {}", label_feature), values_of(feature)};
    if (*value < 0 || *value >= std::numeric_limits<std::int32_t>::max()) {
      return SampleProblem{fmt::format("expected a class number from 0 in {}", label_feature),
                           fmt::format("it is {}", *value)};
    }
    label = *value;
    return std::nullopt;
  } catch (const MalformedExample& error) {
    return SampleProblem{"expected a tf.train.Example", error.what()};
  }
}

std::optional<std::string_view> encoded_image_kind(std::string_view bytes) {
  const auto format = image_format_of(bytes_of(bytes));
  if (!format) return std::nullopt;
  return *format == ImageFormat::jpeg ? "JPEG" : "PNG";
}

}  // namespace lockstep::data
