// dataset.json: describes the TFRecord shards in a directory. `lockstep data convert` writes it
// next to them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/sample/sample_spec.h"
#include "lockstep/data/text/text_schema.h"

namespace lockstep::inline v0::data {

/// Name of the description file in a directory of shards.
inline constexpr const char* kDatasetJson = "dataset.json";

/// One part ("train", "test") of a data set in a directory.
struct PartDescription {
  std::vector<std::string> files = {};  ///< names relative to the directory, in record order
  std::int64_t records = 0;             ///< number of records in the part's shards
  std::string input_feature;            ///< the Example feature that contains the sample
  std::string label_feature;            ///< the Example feature that contains the label
  std::vector<std::int64_t> shape;      ///< [H, W, C], or the extents of another kind of sample
  std::int64_t classes = 0;             ///< number of classes; 0 for a regression
  std::vector<std::string> class_names = {};    ///< by class number; empty if unknown
  std::vector<std::string> feature_names = {};  ///< columns of a table, [F]; empty if unknown
  std::vector<std::string> target_names = {};   ///< target columns; empty if unknown
  std::optional<TextSchema> text = {};          ///< how tokens were made; nullopt for other data
  /// The tensors, each in the Example feature of its name; empty for one input and one label. The
  /// fields above describe the first input and the first target.
  SampleSpec tensors = {};
  /// Lengths of ragged tensors when they are read (Dataset::pad), by name.
  std::map<std::string, std::int64_t> pads = {};
  /// False from the time when a conversion starts to replace the files until all are replaced.
  /// After an interruption, some files may be old and others new: then only `files` is known.
  bool is_complete = true;

  /// Whether records of both parts can be used in one data set: the same features, shape and
  /// classes, with the same names, and tokens of the same tokenizer.
  bool fits(const PartDescription& other) const;
  bool operator==(const PartDescription&) const = default;
};

/// The parts by name. One file for all parts of a directory: {"lockstep_dataset": 1, "parts":
/// {"train": {...}, "test":
/// {...}}}.
using DatasetDescription = std::map<std::string, PartDescription>;

/// Throws Error (data) that names the dataset.json of `directory` and `what`, such as "the part
/// train", unless `part` is complete.
void require_complete(const std::filesystem::path& directory, std::string_view what,
                      const PartDescription& part);

/// Reads the description in `directory`; nullopt if there is no dataset.json. Throws Error (data)
/// if it cannot be parsed.
std::optional<DatasetDescription> read_dataset_json(const std::filesystem::path& directory);

/// Throws Error (data) if write_dataset_part() will: if the names are too many or too long to be
/// read again.
void check_dataset_part(const std::filesystem::path& directory, const std::string& part,
                        const PartDescription& description);

/// Writes one part and keeps the other existing ones. The file is durable when the call returns.
/// Throws Error (data).
void write_dataset_part(const std::filesystem::path& directory, const std::string& part,
                        const PartDescription& description);

}  // namespace lockstep::inline v0::data
