#include "lockstep/data/source/example_decoder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/batch.h"
#include "lockstep/data/image/decode_image.h"
#include "lockstep/data/image/image.h"
#include "lockstep/data/record/example.h"

namespace lockstep::data {
namespace {

ImageRecipe recipe_as_stored(const SampleSpec& spec) {
  const std::vector<std::int64_t>& shape = spec.shape();
  LOCKSTEP_CHECK_OP(shape.size(), ==, 3U);
  return ImageRecipe::parse("none", static_cast<int>(shape[0]), static_cast<int>(shape[1]),
                            static_cast<int>(shape[2]));
}

std::span<const std::uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

/// "it has 12 bytes", or the format of an image that is not supported.
std::string bytes_text(std::string_view bytes) {
  const auto format = unsupported_image_format(bytes_of(bytes));
  return format ? fmt::format("it is a {} image, which is not supported: convert it", *format)
                : fmt::format("it has {} bytes", bytes.size());
}

std::string values_of(const FeatureView& feature) {
  return fmt::format("it has {} of kind {}", counted(feature.size(), "value"),
                     feature_kind_name(feature.kind()));
}

FeatureView find_feature(std::string_view record, const std::string& name) {
  FeatureView feature;
  find_features(record, {&name, 1}, {&feature, 1});
  return feature;
}

}  // namespace

ExampleDecoder::ExampleDecoder(SampleSpec spec, InputKind input, std::vector<std::string> features)
    : spec_(std::move(spec)),
      count_(static_cast<std::size_t>(spec_.feature_count())),
      input_(input),
      names_(std::move(features)) {
  LOCKSTEP_CHECK_OP(names_.size(), ==,
                    spec_.inputs.size() + spec_.targets.size() + (spec_.weighted ? 1 : 0));
  if (input == InputKind::encoded_image) as_stored_.emplace(recipe_as_stored(spec_));
}

namespace {

/// Decodes the values of any tensor but an image.
std::optional<SampleProblem> decode_values(const TensorSpec& tensor, const std::string& name,
                                           const FeatureView& feature, const TensorView& view) {
  const auto problem = [&](const std::string& what) {
    return SampleProblem{fmt::format("expected {} in {}", what, name), values_of(feature)};
  };
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
  const std::int64_t limit = tensor.classes > 0 ? tensor.classes - 1
                             : tensor.type == ElementType::int32
                                 ? std::numeric_limits<std::int32_t>::max()
                                 : std::numeric_limits<std::int64_t>::max();
  const std::int64_t least = tensor.classes > 0 ? 0 : -limit - 1;
  const auto store = [&](std::size_t index, std::int64_t value) -> std::optional<SampleProblem> {
    if (value < least || value > limit)
      return SampleProblem{fmt::format("expected a {} from {} to {} in {}",
                                       tensor.classes > 0 ? "label" : "number", least, limit, name),
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
  thread_local FeatureValues values;
  feature.copy_to(values);
  if (values.int64s.size() != count) return problem(fmt::format("{} integers", count));
  for (std::size_t i = 0; i < count; ++i)
    if (auto wrong = store(i, values.int64s[i])) return wrong;
  return std::nullopt;
}

std::optional<SampleProblem> decode_weight(const FeatureView& feature, float& weight) {
  if (feature.kind() != FeatureKind::floats || feature.size() != 1)
    return SampleProblem{fmt::format("expected one float in {}", kWeightFeature),
                         values_of(feature)};
  feature.copy_floats({&weight, 1});
  if (weight >= 0) return std::nullopt;
  return SampleProblem{fmt::format("expected a weight of 0 or more in {}", kWeightFeature),
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
                                       sample.targets[i]))
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
  if (spec_.inputs.front().type != ElementType::float32)
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
  thread_local ImageScratch scratch;
  if (sample.image != nullptr) {
    sample.image->bytes = bytes_of(bytes);
    sample.image->is_encoded = true;
  } else if (!sample.pixels().empty()) {
    as_stored_->apply(bytes_of(bytes), {}, sample.pixels(), scratch);
  } else {
    as_stored_->apply(bytes_of(bytes), {}, sample.features(), scratch);
  }
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

std::optional<std::string_view> encoded_image_kind(std::string_view bytes) {
  const auto format = image_format_of(bytes_of(bytes));
  if (!format) return std::nullopt;
  return *format == ImageFormat::jpeg ? "JPEG" : "PNG";
}

namespace {

using Names = std::initializer_list<std::string>;

/// The first of the default names that the record has.
std::string usual_feature(std::string_view record, Names names, const char* option,
                          const std::string& where) {
  for (const std::string& name : names) {
    if (find_feature(record, name).kind() != FeatureKind::missing) return name;
  }
  throw Error(
      ErrorCategory::input, where,
      fmt::format("expected {}, or one of the default features {}", option, fmt::join(names, ", ")),
      "the record has " + feature_list(record));
}

/// [H, W, C] from the integer features of the image, if they exist and match.
std::vector<std::int64_t> shape_in_record(std::string_view record, std::size_t bytes) {
  std::vector<std::int64_t> shape;
  std::int64_t count = 1;
  for (const char* name : {"image/height", "image/width", "image/channels"}) {
    const auto extent = find_feature(record, name).single_int64();
    if (!extent || *extent < 1 || *extent > static_cast<std::int64_t>(bytes)) return {};
    shape.push_back(*extent);
    count *= *extent;
    if (count > static_cast<std::int64_t>(bytes)) return {};
  }
  return count == static_cast<std::int64_t>(bytes) ? shape : std::vector<std::int64_t>{};
}

std::vector<std::int64_t> shape_of_image(std::string_view bytes, const std::string& name,
                                         const std::string& where) {
  try {
    const ImageHeader header = ImageDecoder().open(bytes_of(bytes));
    return {header.height, header.width, header.channels};
  } catch (const Error& error) {
    throw Error(ErrorCategory::data, where, fmt::format("expected a usable image in {}", name),
                error.what());
  }
}

/// Raw pixels may start like an encoded image; an explicit shape then decides.
InputKind kind_of(const FeatureView& input, const std::vector<std::int64_t>& told_shape) {
  if (input.kind() != FeatureKind::bytes) return InputKind::floats;
  if (input.size() != 1 || !encoded_image_kind(input.bytes())) return InputKind::pixels;
  const bool is_stored = !told_shape.empty() && static_cast<std::int64_t>(input.bytes().size()) ==
                                                    element_count(told_shape);
  return is_stored ? InputKind::pixels : InputKind::encoded_image;
}

std::vector<std::int64_t> shape_of(const FeatureView& input, const std::string& name,
                                   std::string_view record, const std::string& where) {
  if (input.kind() == FeatureKind::floats && input.size() > 0)
    return {static_cast<std::int64_t>(input.size())};
  if (input.kind() != FeatureKind::bytes || input.size() != 1) {
    throw Error(ErrorCategory::data, where,
                fmt::format("expected one value of bytes, or floats, in {}", name),
                fmt::format("it has {} of kind {}", input.size(), feature_kind_name(input.kind())));
  }
  if (encoded_image_kind(input.bytes())) return shape_of_image(input.bytes(), name, where);
  auto shape = shape_in_record(record, input.bytes().size());
  if (shape.empty() && unsupported_image_format(bytes_of(input.bytes())))
    throw Error(ErrorCategory::data, where, fmt::format("expected a JPEG or PNG image in {}", name),
                bytes_text(input.bytes()));
  if (shape.empty()) {
    throw Error(
        ErrorCategory::input, where,
        fmt::format(
            "expected --input-shape for the raw bytes in {}, or a dataset.json next to the file",
            name),
        fmt::format("there are {} bytes and neither", input.bytes().size()));
  }
  return shape;
}

/// Fails now, instead of in the middle of an epoch, if the first record does not match.
void check_record(const RecordSchema& schema, std::string_view record, const std::string& where) {
  SampleSpec spec = schema.spec;
  if (schema.counts_labels())
    spec.targets.front().classes = std::numeric_limits<std::int32_t>::max();
  const ExampleDecoder decoder(spec, schema.input, schema.features);
  if (schema.input != InputKind::floats) spec.inputs.front().shape = {0};
  Batch one(spec);
  Sample sample = one.sample();
  StoredImage image;
  sample.image = &image;
  auto problem = decoder.decode(record, sample);
  if (!problem) problem = decoder.check_header(image);
  if (problem) throw Error(ErrorCategory::data, where, problem->expected, problem->actual);
}

/// The part of each file in the dataset.json of `directory`, without the names of the other files.
std::unordered_map<std::string, PartDescription> parts_by_file(
    const std::filesystem::path& directory) {
  std::unordered_map<std::string, PartDescription> parts;
  const auto described = read_dataset_json(directory);
  if (!described) return parts;
  for (const auto& [name, part] : *described) {
    PartDescription without_files = part;
    without_files.files.clear();
    for (const std::string& file : part.files) parts.emplace(file, without_files);
  }
  return parts;
}

void check_options(const TFRecordOptions& options) {
  const auto positive = [](std::int64_t extent) { return extent > 0; };
  if (!std::all_of(options.input_shape.begin(), options.input_shape.end(), positive) ||
      options.classes < 0) {
    throw Error(
        ErrorCategory::input, "TFRecord options", "expected a positive shape and class count",
        fmt::format("got [{}] and {}", fmt::join(options.input_shape, ", "), options.classes));
  }
}

/// The schema of records whose features have the names of the tensors.
RecordSchema named_schema(const SampleSpec& spec, std::string_view record,
                          const std::string& where) {
  check_spec(spec, where);
  RecordSchema schema;
  schema.spec = spec;
  for (const TensorSpec& input : spec.inputs) schema.features.push_back(input.name);
  for (const TensorSpec& target : spec.targets) schema.features.push_back(target.name);
  if (spec.weighted) schema.features.emplace_back(kWeightFeature);
  if (spec.inputs.front().type == ElementType::float32)
    schema.input = kind_of(find_feature(record, schema.features.front()), spec.shape());
  return schema;
}

/// The schema of records of one input and one label.
RecordSchema single_schema(const TFRecordOptions& options, const PartDescription& known,
                           std::string_view record, const std::string& where) {
  RecordSchema schema;
  std::string input_feature =
      !options.input_feature.empty() ? options.input_feature : known.input_feature;
  std::string label_feature =
      !options.label_feature.empty() ? options.label_feature : known.label_feature;
  if (input_feature.empty())
    input_feature =
        usual_feature(record, {"image/encoded", "image", "features"}, "--input-feature", where);
  if (label_feature.empty())
    label_feature = usual_feature(record, {"image/class/label", "label"}, "--label-feature", where);
  std::vector<std::int64_t> shape = options.input_shape;
  if (shape.empty() && input_feature == known.input_feature) shape = known.shape;
  if (!shape.empty()) check_shape(shape, where);
  const FeatureView input = find_feature(record, input_feature);
  schema.input = kind_of(input, shape);
  if (shape.empty() && input.kind() != FeatureKind::missing)
    shape = shape_of(input, input_feature, record, where);
  const FeatureView label = find_feature(record, label_feature);
  if (label.kind() == FeatureKind::floats && label.size() > 0 && options.classes == 0) {
    schema.spec = SampleSpec::regression(shape, static_cast<std::int64_t>(label.size()));
  } else {
    const bool is_known = label_feature == known.label_feature;
    const bool by_name = options.classes_by_name && is_known && !known.class_names.empty();
    schema.spec =
        SampleSpec::classification(shape, options.classes > 0 && !by_name ? options.classes
                                          : is_known                      ? known.classes
                                                                          : 0);
  }
  schema.features = {std::move(input_feature), std::move(label_feature)};
  return schema;
}

}  // namespace

std::optional<PartDescription> find_description(const std::vector<std::filesystem::path>& files) {
  // Indexed by file: a directory may have a hundred thousand.
  std::map<std::filesystem::path, std::unordered_map<std::string, PartDescription>> directories;
  std::optional<PartDescription> found;
  for (const auto& file : files) {
    const auto [directory, is_new] = directories.try_emplace(file.parent_path());
    if (is_new) directory->second = parts_by_file(file.parent_path());
    const auto part = directory->second.find(file.filename().string());
    if (part == directory->second.end()) continue;
    require_complete(file.parent_path(), file.filename().string(), part->second);
    if (found && !found->fits(part->second)) {
      throw Error(
          ErrorCategory::data, file.string(),
          fmt::format("expected the features, shape and classes of {}", files.front().string()),
          fmt::format("{} describes it differently", (file.parent_path() / kDatasetJson).string()));
    }
    found = part->second;
  }
  return found;
}

RecordSchema find_schema(const TFRecordOptions& options,
                         const std::optional<PartDescription>& described, std::string_view record,
                         const std::string& where) try {
  check_options(options);
  const PartDescription known = described.value_or(PartDescription{});
  const bool is_named = options.input_feature.empty() && options.label_feature.empty() &&
                        !(options.tensors.inputs.empty() && known.tensors.inputs.empty());
  RecordSchema schema =
      is_named ? named_schema(options.tensors.inputs.empty() ? known.tensors : options.tensors,
                              record, where)
               : single_schema(options, known, record, where);
  const SampleSpec& spec = schema.spec;
  if (schema.input == InputKind::encoded_image && spec.shape().size() != 3)
    throw Error(ErrorCategory::input, where,
                fmt::format("expected a shape HxWxC for the images in {}", schema.features.front()),
                fmt::format("got [{}]", fmt::join(spec.shape(), ", ")));
  const bool has_known_label =
      !spec.targets.empty() && schema.features[spec.inputs.size()] == known.label_feature;
  const auto fits = [](std::int64_t count, const std::vector<std::string>& names) {
    return count == static_cast<std::int64_t>(names.size());
  };
  if (has_known_label && spec.classes() > 0 && fits(spec.classes(), known.class_names))
    schema.class_names = known.class_names;
  if (schema.features.front() == known.input_feature &&
      fits(spec.feature_count(), known.feature_names))
    schema.feature_names = known.feature_names;
  if (has_known_label && fits(spec.target_count(), known.target_names))
    schema.target_names = known.target_names;
  check_record(schema, record, where);
  return schema;
} catch (const MalformedExample& error) {
  throw Error(ErrorCategory::data, where, "expected a tf.train.Example", error.what());
}

}  // namespace lockstep::data
