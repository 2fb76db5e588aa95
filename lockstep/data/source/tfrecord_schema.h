// Finds out what the records of TFRecord files mean.
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

/// Which features make a sample, and its shape. `spec.classes` is 0 where only a scan of the labels can tell.
struct RecordSchema {
  std::string input_feature;
  std::string label_feature;
  SampleSpec spec;
  InputKind input = InputKind::floats;
};

/// What dataset.json says of `files`, if there is one in their directory that names one of them. Throws Error (data)
/// where the files belong to parts that do not fit together.
std::optional<PartDescription> find_description(const std::vector<std::filesystem::path>& files);

/// The schema of records like `record`, from what `options` give, else `described`, else the record itself. `where` is
/// its place, for messages. Throws Error (data) for a record that does not fit, Error (input) where an option is needed
/// to understand it.
RecordSchema find_schema(const TFRecordOptions& options, const std::optional<PartDescription>& described,
                         std::string_view record, const std::string& where);

}  // namespace lockstep::data
