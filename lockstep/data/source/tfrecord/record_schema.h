// Which features of tf.train.Example records make a sample, and its shape.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/sample/sample_spec.h"
#include "lockstep/data/source/file_options.h"
#include "lockstep/data/source/tfrecord/dataset_json.h"
#include "lockstep/data/source/tfrecord/example_decoder.h"

namespace lockstep::inline v0::data {

/// The features of a sample, and its shape.
struct RecordSchema {
  std::vector<std::string> features;  ///< as for ExampleDecoder
  SampleSpec spec;
  InputKind input = InputKind::floats;
  std::vector<std::string> class_names = {};      ///< by class number; empty if unknown
  std::vector<std::string> feature_names = {};    ///< columns of a table; empty if unknown
  std::vector<std::string> target_names = {};     ///< target columns; empty if unknown
  std::optional<TextSchema> text = {};            ///< how tokens were made; nullopt if unknown
  std::map<std::string, std::int64_t> pads = {};  ///< PartDescription::pads of these tensors

  /// Whether only a scan of the labels can determine the number of classes.
  bool counts_labels() const {
    return !spec.targets.empty() && spec.targets.front().type == ElementType::int32 &&
           spec.classes() == 0;
  }
};

/// The description of `files` in a dataset.json in their directory, if it lists one of them. Throws
/// Error (data) if the files belong to parts that do not fit together.
std::optional<PartDescription> find_description(const std::vector<std::filesystem::path>& files);

/// The schema of records like `record`, from `options`, then `described`, then the record itself.
/// `where` is its location, for messages. Throws Error (data) for a record that does not match,
/// Error (input) if an option is required to interpret it.
RecordSchema find_schema(const TFRecordOptions& options,
                         const std::optional<PartDescription>& described, std::string_view record,
                         const std::string& where);

}  // namespace lockstep::inline v0::data
