// dataset.json: what the TFRecord shards in a directory hold, written beside them by `lockstep data convert`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::data {

inline constexpr const char* kDatasetJson = "dataset.json";  ///< The file beside the shards that says what they hold.

/// One part ("train", "test") of a data set in a directory.
struct PartDescription {
  std::vector<std::string> files = {};        ///< names within the directory, in record order
  std::int64_t records = 0;                   ///< in the part's shards
  std::string input_feature;                  ///< the feature of each Example with the sample
  std::string label_feature;                  ///< the feature with the label
  std::vector<std::int64_t> shape;            ///< [H, W, C], or the sizes of another kind of sample
  std::int64_t classes = 0;                   ///< number of classes; 0 for a regression
  std::vector<std::string> class_names = {};  ///< by number; empty where they are not known
  /// False from the time when a conversion begins to replace the files until it has replaced them all. Where that was
  /// interrupted, some files are old and others new: only `files` is known then.
  bool is_complete = true;

  /// Whether records of both can stand in one data set: the same features, shape and classes.
  bool fits(const PartDescription& other) const;
  bool operator==(const PartDescription&) const = default;
};

/// The parts by name. One file for all parts of a directory: {"lockstep_dataset": 1, "parts": {"train": {...}, "test":
/// {...}}}.
using DatasetDescription = std::map<std::string, PartDescription>;

/// Throws Error (data) that names the dataset.json of `directory` and `what`, such as "the part train", unless `part`
/// is complete.
void require_complete(const std::filesystem::path& directory, std::string_view what, const PartDescription& part);

/// Of `directory`; nullopt where it has no dataset.json. Throws Error (data) for one that cannot be understood.
std::optional<DatasetDescription> read_dataset_json(const std::filesystem::path& directory);

/// Sets one part, keeping the others that are there; the file is on the disk when the call returns. Throws Error
/// (data).
void write_dataset_part(const std::filesystem::path& directory, const std::string& part,
                        const PartDescription& description);

}  // namespace lockstep::data
