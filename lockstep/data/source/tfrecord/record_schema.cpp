#include "lockstep/data/source/tfrecord/record_schema.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <map>
#include <unordered_map>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/image/decode_image.h"
#include "lockstep/data/record/example.h"
#include "lockstep/data/sample/batch.h"
#include "lockstep/data/sample/sample.h"

namespace lockstep::inline v0::data {
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
InputKind kind_of(const FeatureView& input, const std::vector<std::int64_t>& known_shape) {
  if (input.kind() != FeatureKind::bytes) return InputKind::floats;
  if (input.size() != 1 || !encoded_image_kind(input.bytes())) return InputKind::pixels;
  const bool is_stored = !known_shape.empty() && static_cast<std::int64_t>(input.bytes().size()) ==
                                                     element_count(known_shape);
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
  if (shape.empty() && !unsupported_image_format(bytes_of(input.bytes())).empty())
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
RecordSchema named_schema(SampleSpec spec, bool without_labels, std::string_view record,
                          const std::string& where) {
  if (without_labels) spec = {.inputs = spec.inputs};
  check_spec(spec, where);
  RecordSchema schema;
  schema.spec = spec;
  for (const TensorSpec& input : spec.inputs) schema.features.push_back(input.name);
  for (const TensorSpec& target : spec.targets) schema.features.push_back(target.name);
  if (spec.weighted) schema.features.emplace_back(kWeightFeature);
  if (spec.inputs.front().type == ElementType::float32 && !spec.inputs.front().is_ragged())
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
  if (input_feature.empty() && !options.trained_input.empty() &&
      find_feature(record, options.trained_input).kind() != FeatureKind::missing)
    input_feature = options.trained_input;
  if (input_feature.empty())
    input_feature =
        usual_feature(record, {"image/encoded", "image", "features"}, "--input-feature", where);
  if (label_feature.empty() && !options.without_labels)
    label_feature = usual_feature(record, {"image/class/label", "label"}, "--label-feature", where);
  std::vector<std::int64_t> shape = options.input_shape;
  if (shape.empty() && input_feature == known.input_feature) shape = known.shape;
  const FeatureView input = find_feature(record, input_feature);
  if (const auto bytes = input.single_bytes();
      shape.empty() && bytes && input_feature == options.trained_input &&
      static_cast<std::int64_t>(bytes->size()) == element_count(options.trained_shape) &&
      !encoded_image_kind(*bytes) && shape_in_record(record, bytes->size()).empty())
    shape = options.trained_shape;
  if (!shape.empty()) check_shape(shape, where);
  schema.input = kind_of(input, shape);
  if (shape.empty() && input.kind() != FeatureKind::missing)
    shape = shape_of(input, input_feature, record, where);
  if (options.without_labels) {
    schema.spec = {.inputs = SampleSpec::classification(shape, 0).inputs};
    schema.features = {std::move(input_feature)};
    return schema;
  }
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
                              options.without_labels, record, where)
               : single_schema(options, known, record, where);
  if (is_named && options.tensors.inputs.empty()) {
    schema.pads = known.pads;
    schema.text = known.text;
  }
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

}  // namespace lockstep::inline v0::data
