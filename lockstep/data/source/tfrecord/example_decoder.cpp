#include "lockstep/data/source/tfrecord/example_decoder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/image/decode_image.h"
#include "lockstep/data/image/image.h"
#include "lockstep/data/record/example.h"

namespace lockstep::inline v0::data {
namespace {

ImageRecipe recipe_as_stored(const SampleSpec& spec) {
  const std::vector<std::int64_t>& shape = spec.shape();
  LOCKSTEP_CHECK_OP(shape.size(), ==, 3U);
  return ImageRecipe::parse("none", static_cast<int>(shape[0]), static_cast<int>(shape[1]),
                            static_cast<int>(shape[2]));
}

std::string values_of(const FeatureView& feature) {
  return fmt::format("it has {} of kind {}", counted(feature.size(), "value"),
                     feature_kind_name(feature.kind()));
}

}  // namespace

ExampleDecoder::ExampleDecoder(SampleSpec spec, InputKind input, std::vector<std::string> features)
    : spec_(std::move(spec)),
      count_(static_cast<std::size_t>(spec_.feature_count())),
      input_(input),
      has_plain_input_(spec_.inputs.front().type != ElementType::float32 ||
                       spec_.inputs.front().is_ragged()),
      names_(std::move(features)) {
  LOCKSTEP_CHECK_OP(names_.size(), ==,
                    spec_.inputs.size() + spec_.targets.size() + (spec_.weighted ? 1 : 0));
  if (input == InputKind::encoded_image) as_stored_.emplace(recipe_as_stored(spec_));
}

namespace {

/// Sets the length of a ragged tensor to that of its feature.
std::optional<SampleProblem> set_ragged_length(ElementType type, const std::string& name,
                                               const FeatureView& feature, TensorView& view) {
  const auto single = type == ElementType::uint8 ? feature.single_bytes() : std::nullopt;
  const std::size_t count = single ? single->size() : feature.size();
  const auto [kind, what] =
      type == ElementType::float32 ? std::pair(FeatureKind::floats, "floats")
      : type == ElementType::uint8 ? std::pair(FeatureKind::bytes, "raw bytes")
      : type == ElementType::bytes ? std::pair(FeatureKind::bytes, "values of bytes")
                                   : std::pair(FeatureKind::int64s, "integers");
  if (feature.kind() != kind || (type == ElementType::uint8 && !single) || count % view.unit != 0 ||
      count > static_cast<std::size_t>(kMaxElements))
    return SampleProblem{
        fmt::format("expected up to 2^28 {}{} in {}", what,
                    view.unit > 1 ? fmt::format(", a multiple of {},", view.unit) : "", name),
        single ? bytes_text(*single) : values_of(feature)};
  view.set_length(count / view.unit);
  return std::nullopt;
}

/// Decodes the values of any tensor but an image.
std::optional<SampleProblem> decode_values(const TensorSpec& tensor, const std::string& name,
                                           const FeatureView& feature, TensorView& view,
                                           std::int32_t first_class = 0) {
  const auto problem = [&](const std::string& what) {
    return SampleProblem{fmt::format("expected {} in {}", what, name), values_of(feature)};
  };
  thread_local FeatureValues values;
  if (view.unit > 0)
    if (auto wrong = set_ragged_length(tensor.type, name, feature, view)) return wrong;
  const std::size_t count = view.elements;
  if (tensor.type == ElementType::float32) {
    if (feature.kind() != FeatureKind::floats || feature.size() != count)
      return problem(fmt::format("{} floats", count));
    feature.copy_floats(view.as<float>());
    return std::nullopt;
  }
  if (tensor.type == ElementType::uint8) {
    const auto bytes = feature.single_bytes();
    if (!bytes || bytes->size() != count) return problem(fmt::format("{} raw bytes", count));
    std::ranges::copy(bytes_of(*bytes), view.as<std::uint8_t>().begin());
    return std::nullopt;
  }
  if (tensor.type == ElementType::bytes) {
    if (feature.kind() != FeatureKind::bytes || feature.size() != count)
      return problem(fmt::format("{} of bytes", counted(count, "value")));
    feature.copy_to(values);
    std::ranges::copy(values.bytes, view.as<std::string>().begin());
    return std::nullopt;
  }
  const std::int64_t limit = tensor.classes > 0 ? tensor.classes - 1
                             : tensor.type == ElementType::int32
                                 ? std::numeric_limits<std::int32_t>::max()
                                 : std::numeric_limits<std::int64_t>::max();
  const std::int64_t lowest = tensor.classes > 0 ? first_class : -limit - 1;
  const auto store = [&](std::size_t index, std::int64_t value) -> std::optional<SampleProblem> {
    if (value < lowest || value > limit)
      return SampleProblem{
          fmt::format("expected a {} from {} to {} in {}", tensor.classes > 0 ? "label" : "number",
                      lowest, limit, name),
          fmt::format("it is {}", value)};
    if (tensor.type == ElementType::int32)
      view.as<std::int32_t>()[index] = static_cast<std::int32_t>(value);
    else
      view.as<std::int64_t>()[index] = value;
    return std::nullopt;
  };
  if (count == 1) {
    const auto value = feature.single_int64();
    return value ? store(0, *value) : problem("one integer");
  }
  if (feature.kind() != FeatureKind::int64s || feature.size() != count)
    return problem(fmt::format("{} integers", count));
  feature.copy_to(values);
  for (std::size_t i = 0; i < count; ++i)
    if (auto wrong = store(i, values.int64s[i])) return wrong;
  return std::nullopt;
}

std::optional<SampleProblem> decode_weight(const FeatureView& feature, float& weight) {
  if (feature.kind() != FeatureKind::floats || feature.size() != 1)
    return SampleProblem{fmt::format("expected one float in {}", kWeightFeature),
                         values_of(feature)};
  feature.copy_floats({&weight, 1});
  if (weight >= 0 && std::isfinite(weight)) return std::nullopt;
  return SampleProblem{fmt::format("expected a finite weight of 0 or more in {}", kWeightFeature),
                       fmt::format("it is {}", weight)};
}

}  // namespace

std::optional<SampleProblem> ExampleDecoder::decode(std::string_view record, Sample& sample) const {
  try {
    thread_local std::vector<FeatureView> found;
    found.resize(names_.size());
    find_features(record, names_, found);
    for (std::size_t i = 0; i < names_.size(); ++i) {
      if (found[i].kind() == FeatureKind::missing) {
        return SampleProblem{fmt::format("expected the feature {}", names_[i]),
                             "the record has " + feature_list(record)};
      }
    }
    if (auto problem = decode_input(found[0], sample)) return problem;
    const std::size_t inputs = spec_.inputs.size();
    for (std::size_t i = 1; i < inputs; ++i)
      if (auto problem = decode_values(spec_.inputs[i], names_[i], found[i], sample.inputs[i]))
        return problem;
    for (std::size_t i = 0; i < spec_.targets.size(); ++i)
      if (auto problem = decode_values(spec_.targets[i], names_[inputs + i], found[inputs + i],
                                       sample.targets[i], spec_.targets[i].first_class()))
        return problem;
    return spec_.weighted ? decode_weight(found.back(), sample.weight) : std::nullopt;
  } catch (const MalformedExample& error) {
    return SampleProblem{"expected a tf.train.Example", error.what()};
  } catch (const Error& error) {
    return unusable_image(error);
  }
}

SampleProblem ExampleDecoder::unusable_image(const Error& error) const {
  return {fmt::format("expected a usable image in {}", input_feature()), error.what()};
}

std::optional<SampleProblem> ExampleDecoder::check_header(const StoredImage& image) const {
  if (!image.is_encoded) return std::nullopt;
  try {
    ImageDecoder().open(image.bytes);
    return std::nullopt;
  } catch (const Error& error) {
    return unusable_image(error);
  }
}

std::optional<SampleProblem> ExampleDecoder::decode_input(const FeatureView& feature,
                                                          Sample& sample) const {
  if (has_plain_input_)
    return decode_values(spec_.inputs.front(), input_feature(), feature, sample.inputs.front());
  if (input_ == InputKind::floats) {
    if (feature.kind() != FeatureKind::floats || feature.size() != count_)
      return SampleProblem{fmt::format("expected {} floats in {} for shape [{}]", count_,
                                       input_feature(), fmt::join(spec_.shape(), ", ")),
                           values_of(feature)};
    feature.copy_floats(sample.features());
    return std::nullopt;
  }
  const auto bytes = feature.single_bytes();
  if (input_ == InputKind::encoded_image) {
    if (!bytes)
      return SampleProblem{fmt::format("expected a JPEG or PNG image in {}", input_feature()),
                           values_of(feature)};
    decode_image(*bytes, sample);
    return std::nullopt;
  }
  if (bytes && bytes->size() == count_) {
    sample.set_image_view(bytes_of(*bytes));
    return std::nullopt;
  }
  return SampleProblem{fmt::format("expected {} raw bytes in {} for shape [{}]", count_,
                                   input_feature(), fmt::join(spec_.shape(), ", ")),
                       bytes ? bytes_text(*bytes) : values_of(feature)};
}

void ExampleDecoder::decode_image(std::string_view bytes, Sample& sample) const {
  if (sample.image == nullptr) return as_stored_->apply(bytes_of(bytes), {}, sample);
  sample.image->bytes = bytes_of(bytes);
  sample.image->is_encoded = true;
}

std::optional<SampleProblem> read_class(std::string_view record, const std::string& label_feature,
                                        std::int64_t& label) {
  try {
    const FeatureView feature = find_feature(record, label_feature);
    const auto value = feature.single_int64();
    if (!value)
      return SampleProblem{fmt::format("expected one integer in {}", label_feature),
                           values_of(feature)};
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

std::string bytes_text(std::string_view bytes) {
  const std::string_view format = unsupported_image_format(bytes_of(bytes));
  return format.empty() ? fmt::format("it has {} bytes", bytes.size())
                        : fmt::format("it is {}", format);
}

std::optional<std::string_view> encoded_image_kind(std::string_view bytes) {
  const auto format = image_format_of(bytes_of(bytes));
  if (!format) return std::nullopt;
  return *format == ImageFormat::jpeg ? "JPEG" : "PNG";
}

}  // namespace lockstep::inline v0::data
