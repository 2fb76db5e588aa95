#include "data/source/example_decoder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>
#include <utility>

namespace lockstep::data {
namespace {

std::string values_of(const FeatureView& feature) {
  return fmt::format("it has {} value{} of kind {}", feature.size(), feature.size() == 1 ? "" : "s",
                     feature_kind_name(feature.kind()));
}

}  // namespace

ExampleDecoder::ExampleDecoder(SampleSpec spec, std::string input_feature, std::string label_feature)
    : spec_(std::move(spec)), names_{std::move(input_feature), std::move(label_feature)} {}

std::optional<SampleProblem> ExampleDecoder::decode(std::string_view record, Sample& sample) const {
  try {
    std::array<FeatureView, 2> found;
    find_features(record, names_, found);
    for (std::size_t i = 0; i < names_.size(); ++i) {
      if (found[i].kind() == FeatureKind::missing) {
        return SampleProblem{fmt::format("needed the feature {}", names_[i]), "the record has " + feature_list(record)};
      }
    }
    if (auto problem = decode_input(found[0], sample)) return problem;
    return decode_label(found[1], sample);
  } catch (const MalformedExample& error) {
    return SampleProblem{"needed a tf.train.Example", error.what()};
  }
}

std::optional<SampleProblem> ExampleDecoder::decode_input(const FeatureView& feature, Sample& sample) const {
  const std::size_t size = feature.size();
  const auto count = static_cast<std::size_t>(spec_.feature_count());
  if (feature.kind() == FeatureKind::floats && size == count && sample.pixels.empty()) {
    feature.copy_floats(sample.features);
    return std::nullopt;
  }
  const std::string needed =
      fmt::format("needed {} raw bytes{} in {} for shape [{}]", count, sample.pixels.empty() ? " or floats" : "",
                  input_feature(), fmt::join(spec_.shape, ", "));
  if (feature.kind() != FeatureKind::bytes || size != 1) return SampleProblem{needed, values_of(feature)};
  const std::string_view bytes = feature.bytes();
  if (bytes.size() == count) {
    sample.set_image({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
    return std::nullopt;
  }
  if (const auto kind = encoded_image_kind(bytes)) return encoded_image_problem(input_feature(), *kind);
  return SampleProblem{needed, fmt::format("it has {} bytes", bytes.size())};
}

std::optional<SampleProblem> ExampleDecoder::decode_label(const FeatureView& feature, Sample& sample) const {
  if (spec_.classes == 0) {
    if (feature.kind() == FeatureKind::floats && feature.size() == sample.targets.size()) {
      feature.copy_floats(sample.targets);
      return std::nullopt;
    }
    return SampleProblem{fmt::format("needed {} floats in {}", spec_.targets, label_feature()), values_of(feature)};
  }
  const auto label = feature.single_int64();
  if (!label) return SampleProblem{fmt::format("needed one integer in {}", label_feature()), values_of(feature)};
  if (*label < 0 || *label >= spec_.classes) {
    return SampleProblem{fmt::format("needed a label from 0 to {} in {}", spec_.classes - 1, label_feature()),
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
    if (!value) return SampleProblem{fmt::format("needed one integer in {}", label_feature), values_of(feature)};
    if (*value < 0 || *value >= std::numeric_limits<std::int32_t>::max()) {
      return SampleProblem{fmt::format("needed a class number from 0 in {}", label_feature),
                           fmt::format("it is {}", *value)};
    }
    label = *value;
    return std::nullopt;
  } catch (const MalformedExample& error) {
    return SampleProblem{"needed a tf.train.Example", error.what()};
  }
}

std::optional<std::string_view> encoded_image_kind(std::string_view bytes) {
  if (bytes.starts_with("\xff\xd8\xff")) return "JPEG";
  if (bytes.starts_with("\x89PNG")) return "PNG";
  return std::nullopt;
}

SampleProblem encoded_image_problem(const std::string& feature, std::string_view kind) {
  return {fmt::format("needed raw pixels in {}; decoding images is not in this version", feature),
          fmt::format("it holds a {} image", kind)};
}

std::string feature_list(std::string_view record) {
  std::string list;
  for (const auto& [name, value] : parse_example(record)) {
    list += fmt::format("{}{} ({})", list.empty() ? "" : ", ", name,
                        feature_kind_name(static_cast<FeatureKind>(value.index())));
  }
  return list.empty() ? "no features" : "the features " + list;
}

}  // namespace lockstep::data
