// The names of classes and columns of a trained model, and matching data sets to them.
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
#include "lockstep/model/loss/loss.h"
#include "lockstep/model/network/network.h"

namespace lockstep::inline v0::train {

/// The names and schemas of the data that a model was trained on.
struct DataNames {
  std::vector<std::string> classes;   ///< by class number; empty if unknown
  std::vector<std::string> features;  ///< SourceInfo::feature_names; empty if unknown
  std::vector<std::string> targets;   ///< SourceInfo::target_names; empty if unknown
  std::shared_ptr<const data::TableSchema> table = {};  ///< SourceInfo::table; null if unknown
  /// The first target, which `classes` or `targets` describe; empty if unknown.
  std::string target = {};
  std::shared_ptr<const data::TextSchema> text = {};  ///< SourceInfo::text; null if unknown

  static DataNames of(const data::Dataset& dataset);
  /// Reads the names that add_to() stored; empty in checkpoints without them. Throws Error
  /// (checkpoint) for a damaged schema of a table.
  static DataNames of(const checkpoint::Configuration& configuration);
  /// Also reads the tokenizer file in the checkpoint.
  static DataNames of(const checkpoint::TrainingState& state);
  /// Stores the known names in the configuration of a checkpoint.
  void add_to(checkpoint::Configuration& configuration) const;
};

/// Returns the output whose loss reads the target with the classes `names.classes`; empty if there
/// is only one loss, nullopt if no loss reads that target.
std::optional<std::string> output_of_classes(const model::Network& network,
                                             const model::TotalLoss& loss, const DataNames& names);

/// Describes the first difference between `dataset` and the training data of the checkpoint `file`,
/// in features, tokens and, with `with_classes`, classes. Empty if there is none, or if they are
/// unknown.
std::string describe_name_mismatch(const data::Dataset& dataset, const std::filesystem::path& file,
                                   bool with_classes);

/// Throws Error (data) that names the first difference if the features of `dataset` differ from
/// `trained` in names, order or scaling, or its text in the tokenizer. Unknown names match any.
void check_same_features(const data::Dataset& dataset, const DataNames& trained);

/// Returns `dataset` with the class numbers of `trained`; it may list classes in another order, or
/// lack some. Unchanged if its classes or those of `trained` have no names. Throws Error (data) for
/// a class that `trained` does not have, for other targets, and the errors of
/// check_same_features().
data::Dataset matched(const data::Dataset& dataset, const DataNames& trained);

}  // namespace lockstep::inline v0::train
