// Determines the features and shapes of TFRecord records.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/source/dataset_json.h"
#include "lockstep/data/source/example_decoder.h"
#include "lockstep/data/source/tfrecord_options.h"

namespace lockstep::data {

/// The features of a sample, and its shape. `spec.classes` is 0 if only a scan of the labels can determine it.
struct RecordSchema {
  std::string input_feature;
  std::string label_feature;
  SampleSpec spec;
  InputKind input = InputKind::floats;
};

/// The description of `files` in a dataset.json in their directory, if it lists one of them. Throws Error (data) if the
/// files belong to parts that do not fit together.
std::optional<PartDescription> find_description(const std::vector<std::filesystem::path>& files);

/// The schema of records like `record`, from `options`, then `described`, then the record itself. `where` is its
/// location, for messages. Throws Error (data) for a record that does not match, Error (input) if an option is required
/// to interpret it.
RecordSchema find_schema(const TFRecordOptions& options, const std::optional<PartDescription>& described,
                         std::string_view record, const std::string& where);

}  // namespace lockstep::data
