#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/checkpoint/training_state.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/sample/batch.h"
#include "lockstep/data/table/schema.h"
#include "lockstep/data/text/text_schema.h"
#include "lockstep/model/loss.h"
#include "lockstep/model/network.h"

namespace lockstep::strategy {

class Strategy;

/// Purpose of a data set.
enum class DataUse {
  training,    ///< must have exactly the classes of the network
  evaluation,  ///< may lack classes, if they have names or only their labels are known
  prediction,  ///< labels do not matter
};

/// Throws Error (data) unless `dataset` fits `network` and `loss`: names, types and shapes of the
/// inputs, number of classes or targets, a class for each position of an output such as [T, V], at
/// least one record. One input matches one input whatever
/// their names, and so do the loss and a single target. Throws Error (input) if it is not batched,
/// if a tensor that they read has no fixed size, or, for evaluation and prediction, if it does not
/// yield each record once.
void check_data_fits(const data::Dataset& dataset, const model::Network& network,
                     const model::TotalLoss& loss, DataUse use = DataUse::training);

/// A weight for each class, so that all classes count the same: records / (classes * records of the
/// class), 0 for a class without records; class numbers instead of records if these have several.
/// Reads every record once, each rank its part: encoded images without decoding them. Maps of the
/// data set are not applied. Throws Error (input) unless the data set has classes, and any reading
/// error. Collective.
std::vector<float> balanced_class_weights(const Strategy& strategy, const data::Dataset& dataset);

/// The names of classes, features and targets, the meaning of a table's columns and the tokenizer
/// of a text, which belong to a trained model.
struct DataNames {
  std::vector<std::string> classes;   ///< by class number; empty if unknown
  std::vector<std::string> features;  ///< SourceInfo::feature_names; empty if unknown
  std::vector<std::string> targets;   ///< SourceInfo::target_names; empty if unknown
  std::shared_ptr<const data::TableSchema> table = {};  ///< SourceInfo::table; null if unknown
  /// The first target, which `classes` or `targets` are of; empty if unknown.
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

/// The output whose loss reads the target that `names.classes` are of; empty if there is one loss.
/// If no loss reads that target, the name of no output.
std::string output_of_classes(const model::Network& network, const model::TotalLoss& loss,
                              const DataNames& names);

/// What is different between the features and the tokens of `dataset`, and with `with_classes` its
/// classes, and those that the checkpoint of the weights `file` was trained with; empty if nothing
/// is, or if it is not known.
std::string other_names(const data::Dataset& dataset, const std::filesystem::path& file,
                        bool with_classes);

/// Logs on the chief if `text` is read with the tokenizer of a checkpoint because the file is
/// missing or has changed.
void note_tokenizer(const Strategy& strategy, const data::TextSchema& text);

/// Throws Error (data) that names the first difference if `dataset` has other features than
/// `trained`, or the same in another order, or if it is a table that is scaled otherwise. Unknown
/// names match all others. The same for a text of another tokenizer.
void check_same_features(const data::Dataset& dataset, const DataNames& trained);

/// `dataset` with the class numbers of `trained`, of whose classes it may lack some, and which it
/// may have in another order. Unchanged if its classes or those of `trained` have no names. Throws
/// Error (data) for a class that `trained` does not have, for other targets, and the errors of
/// check_same_features().
data::Dataset matched(const data::Dataset& dataset, const DataNames& trained);

/// A warning that `dataset`, with labels up to `highest_label`, may have other classes than those
/// of the network's `outputs`: it lacks the last ones, and no names tell that they are the same.
/// Empty if there is nothing to warn of.
std::string class_warning(const data::Dataset& dataset, std::int64_t outputs,
                          std::int32_t highest_label);

/// A warning that names the columns of a table (SourceInfo::feature_names) whose values are far
/// from unit scale, and what to do; empty if there are none. Reads up to 1000 records, spread over
/// the data set. Not for data sets with maps or other preparation after their record operations.
std::string scale_warning(const data::Dataset& dataset);
/// A warning that a text is a few very long samples: perhaps its length was meant in other units
/// than tokens. Empty for other data.
std::string length_warning(const data::Dataset& dataset);
/// Logs these warnings on the chief.
void warn_of_scales(const Strategy& strategy, const data::Dataset& dataset);
/// Logs on the chief what a table was read as, and what may be wrong with it
/// (TableSchema::summary, warnings). `trained`: the schema of the training table, if that is
/// another one. Nothing for other data.
void report_table(const Strategy& strategy, const data::Dataset& dataset,
                  const data::TableSchema* trained = nullptr);

/// Where the first NaN or infinity in the features or targets of these parts is, for the message of
/// a skipped step: "train-0.tfrecord: record 3 has nan in the feature number 2 of 4". Empty if
/// there is none.
std::string not_finite_text(const data::RecordSource& source,
                            const std::vector<data::Batch>& parts);

/// Describes everything about a data set that must be the same on all ranks, as lines for
/// job::Agreement::require_same_lines(): "global batch: 64", "data: 60000 records of [28, 28, 1] in
/// 10 classes".
std::string describe_plan(const data::Dataset& dataset);

}  // namespace lockstep::strategy
