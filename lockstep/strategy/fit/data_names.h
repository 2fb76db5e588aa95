// The names of classes and columns that belong to a trained model, and data sets that have them.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/checkpoint/training_state.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/table/schema.h"
#include "lockstep/data/text/text_schema.h"
#include "lockstep/model/loss.h"
#include "lockstep/model/network.h"

namespace lockstep::strategy {

/// The names of classes, features and targets, the meaning of a table's columns and the tokenizer
/// of a text, which belong to a trained model.
struct DataNames {
  std::vector<std::string> classes;   ///< by class number; empty if unknown
  std::vector<std::string> features;  ///< SourceInfo::feature_names; empty if unknown
  std::vector<std::string> targets;   ///< SourceInfo::target_names; empty if unknown
  std::shared_ptr<const data::TableSchema> table = {};  ///< SourceInfo::table; null if unknown
  /// The first target, whose classes or columns `classes` or `targets` name; empty if unknown.
  std::string target = {};
  std::shared_ptr<const data::TextSchema> text = {};  ///< SourceInfo::text; null if unknown

  static DataNames of(const data::Dataset& dataset);
  /// Those that add_to() stored; empty in checkpoints without them. Throws Error (checkpoint) for a
  /// damaged schema of a table.
  static DataNames of(const checkpoint::Configuration& configuration);
  /// The same, with the file of the tokenizer that is in the checkpoint.
  static DataNames of(const checkpoint::TrainingState& state);
  /// Stores the names that are known in the configuration of a checkpoint.
  void add_to(checkpoint::Configuration& configuration) const;
};

/// The output whose loss reads the target with the classes `names.classes`; empty if there is only
/// one loss, nullopt if no loss reads that target.
std::optional<std::string> output_of_classes(const model::Network& network,
                                             const model::TotalLoss& loss, const DataNames& names);

/// Describes the first difference between the features and tokens of `dataset`, and with
/// `with_classes` its classes, and those that the checkpoint of the weights `file` was trained
/// with; empty if there is none, or if they are unknown.
std::string describe_name_mismatch(const data::Dataset& dataset, const std::filesystem::path& file,
                                   bool with_classes);

/// Throws Error (data) that names the first difference if `dataset` has other features than
/// `trained`, or the same in another order, or if it is a table that is scaled otherwise. Unknown
/// names match all others. Also throws it for a text of another tokenizer.
void check_same_features(const data::Dataset& dataset, const DataNames& trained);

/// `dataset` with the class numbers of `trained`, of whose classes it may lack some, and which it
/// may have in another order. Unchanged if its classes or those of `trained` have no names. Throws
/// Error (data) for a class that `trained` does not have, for other targets, and the errors of
/// check_same_features().
data::Dataset matched(const data::Dataset& dataset, const DataNames& trained);

}  // namespace lockstep::strategy
