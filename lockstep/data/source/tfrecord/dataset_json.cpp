#include "lockstep/data/source/tfrecord/dataset_json.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file/atomic_file.h"
#include "lockstep/base/file/input_file.h"
#include "lockstep/base/json/json.h"
#include "lockstep/base/json/json_member.h"
#include "lockstep/base/text.h"
#include "lockstep/data/record/compression.h"

namespace lockstep::inline v0::data {
namespace {

constexpr int kDatasetVersion = 1;

nlohmann::ordered_json to_json(const std::vector<TensorSpec>& tensors,
                               const std::map<std::string, std::int64_t>& pads) {
  auto object = nlohmann::ordered_json::array();
  for (const TensorSpec& tensor : tensors) {
    object.push_back(
        {{"name", tensor.name}, {"type", to_string(tensor.type)}, {"shape", tensor.shape}});
    if (tensor.classes > 0) object.back()["classes"] = tensor.classes;
    if (const auto pad = pads.find(tensor.name); pad != pads.end())
      object.back()["pad"] = pad->second;
  }
  return object;
}

nlohmann::ordered_json to_json(const PartDescription& part) {
  if (!part.is_complete) return {{"incomplete", true}, {"files", part.files}};
  nlohmann::ordered_json object = {{"records", part.records}};
  if (part.tensors.inputs.empty()) {
    object["input_feature"] = part.input_feature;
    object["label_feature"] = part.label_feature;
    object["shape"] = part.shape;
    object["classes"] = part.classes;
  } else {
    object["inputs"] = to_json(part.tensors.inputs, part.pads);
    object["targets"] = to_json(part.tensors.targets, part.pads);
    if (part.tensors.weighted) object["weighted"] = true;
  }
  for (const auto& [key, names] : {std::pair("class_names", &part.class_names),
                                   {"feature_names", &part.feature_names},
                                   {"target_names", &part.target_names}})
    if (!names->empty()) object[key] = nlohmann::ordered_json(encode_strings(*names));
  if (part.text) object["text"] = nlohmann::ordered_json(part.text->to_json());
  object["files"] = part.files;
  return object;
}

std::vector<TensorSpec> tensors_of(const nlohmann::json& object, const char* key,
                                   const std::string& where,
                                   std::map<std::string, std::int64_t>& pads) {
  std::vector<TensorSpec> tensors;
  for (const auto& tensor : json_member<nlohmann::json::array_t>(object, key)) {
    tensors.push_back({.name = json_member<std::string>(tensor, "name"),
                       .type = parse_element_type(where, json_member<std::string>(tensor, "type")),
                       .shape = json_member<std::vector<std::int64_t>>(tensor, "shape"),
                       .classes = json_member(tensor, "classes", std::int64_t{0})});
    if (!tensor.contains("pad")) continue;
    const auto length = json_member<std::int64_t>(tensor, "pad");
    if (!tensors.back().is_ragged() || length < 1)
      throw Error(ErrorCategory::data, where,
                  "expected \"pad\" to be 1 or more, of a tensor whose first extent is -1",
                  fmt::format("got {} of {}", length, to_string(tensors.back())));
    pads[tensors.back().name] = length;
  }
  return tensors;
}

/// Reads the tensors; the first input and target are also in the fields for one input and one
/// label.
void read_tensors(const nlohmann::json& object, const std::string& where,
                  PartDescription& part) try {
  part.tensors = {.inputs = tensors_of(object, "inputs", where, part.pads),
                  .targets = tensors_of(object, "targets", where, part.pads),
                  .weighted = json_member(object, "weighted", false)};
  check_spec(part.tensors, where);
  part.input_feature = part.tensors.inputs.front().name;
  if (!part.tensors.targets.empty()) part.label_feature = part.tensors.targets.front().name;
  part.shape = part.tensors.shape();
  part.classes = part.tensors.classes();
} catch (const Error& error) {
  throw Error(ErrorCategory::data, error.message());
}

TextSchema text_of(const nlohmann::json& object, const std::string& where) try {
  return TextSchema::from_checkpoint(object, where);
} catch (const Error& error) {
  throw Error(ErrorCategory::data, error.message());
}

PartDescription from_json(const nlohmann::json& object, const std::string& where) {
  PartDescription part;
  using Texts = std::vector<std::string>;
  part.is_complete = !json_member(object, "incomplete", false);
  part.files = json_member<Texts>(object, "files");
  // The names are untrusted: they must not lead out of the directory.
  for (const std::string& file : part.files)
    if (file.empty() || file == ".." || std::filesystem::path(file).filename() != file)
      throw Error(ErrorCategory::data, where,
                  "expected \"files\" to be names of files in the same directory",
                  fmt::format("got \"{}\"", file));
  if (!part.is_complete) return part;
  part.records = json_member<std::int64_t>(object, "records");
  if (object.contains("inputs")) {
    read_tensors(object, where, part);
  } else {
    part.input_feature = json_member<std::string>(object, "input_feature");
    part.label_feature = json_member<std::string>(object, "label_feature");
    part.shape = json_member<std::vector<std::int64_t>>(object, "shape");
    part.classes = json_member<std::int64_t>(object, "classes");
  }
  if (part.classes < 0 || part.classes > std::numeric_limits<std::int32_t>::max())
    throw Error(ErrorCategory::data, where, "expected a number of classes from 0 to 2^31 - 1",
                fmt::format("got {}", part.classes));
  for (const auto& [key, names] : {std::pair("class_names", &part.class_names),
                                   {"feature_names", &part.feature_names},
                                   {"target_names", &part.target_names}})
    for (const std::string& name : json_member(object, key, Texts()))
      names->push_back(decode_bytes(name));
  if (object.contains("text")) part.text = text_of(object.at("text"), where);
  return part;
}

/// The new text of the file, with one part replaced or added, which parse_json() accepts.
std::string text_with(const std::filesystem::path& directory, const std::string& part,
                      const PartDescription& description) {
  DatasetDescription parts = read_dataset_json(directory).value_or(DatasetDescription{});
  parts[part] = description;
  nlohmann::ordered_json object = {{"lockstep_dataset", kDatasetVersion},
                                   {"parts", nlohmann::ordered_json::object()}};
  for (const auto& [name, each] : parts) object["parts"][name] = to_json(each);
  std::string text = dump_json(object, 2) + "\n";
  parse_json(text, ErrorCategory::data, (directory / kDatasetJson).string());
  return text;
}

}  // namespace

bool PartDescription::fits(const PartDescription& other) const {
  return input_feature == other.input_feature && label_feature == other.label_feature &&
         shape == other.shape && classes == other.classes && class_names == other.class_names &&
         feature_names == other.feature_names && target_names == other.target_names &&
         tensors == other.tensors && pads == other.pads &&
         (text && other.text ? text->agrees_with(*other.text) : text == other.text);
}

void require_complete(const std::filesystem::path& directory, std::string_view what,
                      const PartDescription& part) {
  if (part.is_complete) return;
  throw Error(ErrorCategory::data, (directory / kDatasetJson).string(),
              fmt::format("expected a complete conversion of {}", what),
              "got one that was interrupted while it replaced files; run lockstep data convert "
              "--overwrite again");
}

std::optional<DatasetDescription> read_dataset_json(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kDatasetJson;
  if (std::error_code ignored; !std::filesystem::exists(path, ignored)) return std::nullopt;
  // One byte more than parse_json() accepts, so that it rejects a larger file.
  const std::string text = read_up_to(InputFile(path), Compression::none, JsonLimits{}.bytes + 1);
  const nlohmann::json object = parse_json(text, ErrorCategory::data, path.string());
  std::string part_prefix;
  try {
    if (const auto version = json_member<nlohmann::json>(object, "lockstep_dataset");
        version != kDatasetVersion)
      throw Error(ErrorCategory::data, path.string(),
                  fmt::format("expected \"lockstep_dataset\": {}", kDatasetVersion),
                  fmt::format("it is {}", describe_json(version)));
    DatasetDescription parts;
    for (const auto& [name, part] : json_member<nlohmann::json::object_t>(object, "parts")) {
      part_prefix = fmt::format("part {}: ", describe_json(name));
      parts[name] = from_json(part, path.string());
    }
    return parts;
  } catch (const std::invalid_argument& reason) {
    throw Error(ErrorCategory::data, path.string(),
                "expected a description written by `lockstep data convert`",
                part_prefix + reason.what());
  }
}

void check_dataset_part(const std::filesystem::path& directory, const std::string& part,
                        const PartDescription& description) {
  text_with(directory, part, description);
}

void write_dataset_part(const std::filesystem::path& directory, const std::string& part,
                        const PartDescription& description) {
  write_file_atomically(directory / kDatasetJson, text_with(directory, part, description));
}

}  // namespace lockstep::inline v0::data
