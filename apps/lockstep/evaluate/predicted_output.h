// The representation of the values of one network output: probabilities of classes or of targets,
// or the raw values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/record/example.h"
#include "lockstep/model/loss/loss.h"
#include "lockstep/model/network/network.h"
#include "lockstep/strategy/trainer_options.h"
#include "lockstep/train/evaluation/evaluation.h"
#include "lockstep/train/input/data_names.h"

namespace lockstep::inline v0::apps {

/// How values of classes are written.
struct PredictionStyle {
  bool logits = false;   ///< write raw outputs instead of probabilities to CSV and TFRecord
  std::int64_t top = 0;  ///< number of most probable classes to write; 0: all outputs
};

/// The values of one record.
struct PredictedRow {
  std::vector<float> outputs = {};
  /// Probabilities of the classes or outputs; empty for other values. With positions, the
  /// probability of the most probable class at each.
  std::vector<double> probabilities = {};
  /// The classes to write, the most probable first; empty without classes. With positions, the
  /// most probable class at each.
  std::vector<std::int64_t> ranked = {};

  double probability() const { return probabilities[static_cast<std::size_t>(ranked.front())]; }
};

/// One output of a network. Its loss determines the representation: the logits of a cross-entropy
/// are converted to probabilities with softmax or sigmoid, unless the network ends in that
/// activation; other values are written unchanged.
class PredictedOutput {
 public:
  /// The output number `index`, with the loss of its training; for an untrained output or
  /// embeddings, any loss of values. `names`: the data names of its target.
  PredictedOutput(const model::Network& network, std::size_t index, const model::Loss& loss,
                  const train::DataNames& names);

  const std::string& name() const { return name_; }
  std::size_t index() const { return index_; }
  std::int64_t classes() const { return classes_; }  ///< 0 if the output is not a classifier
  const model::Loss& loss() const { return loss_; }
  /// Whether each record has a class at several positions.
  bool has_positions() const { return positions_ > 1; }
  /// Whether predicted_class() may be called.
  bool has_class_names() const { return !names_.empty() && !has_positions(); }

  PredictedRow row(std::span<const float> outputs, const PredictionStyle& style) const;

  // The columns of a CSV table, each after a comma, with `prefix` before their names.
  std::string header(const std::string& prefix, const PredictionStyle& style) const;
  std::string fields(const PredictedRow& row, const PredictionStyle& style) const;
  /// The members of a JSON object without its braces: `"predicted":1,"probability":0.75,…`.
  std::string members(const PredictedRow& row, const PredictionStyle& style) const;
  /// Adds features whose names begin with `prefix`.
  void add_features(const PredictedRow& row, const std::string& prefix,
                    const PredictionStyle& style, data::Example& example) const;
  /// The name of the predicted class. Requires has_class_names().
  std::string predicted_class(const PredictedRow& row) const { return class_text(row.ranked[0]); }

 private:
  PredictedRow row_of_position(std::span<const float> outputs, const PredictionStyle& style) const;
  std::vector<std::string> classes_of(const PredictedRow& row) const;
  std::string class_text(std::int64_t number) const;
  std::string_view column_name(const PredictionStyle& style) const;
  bool has_logits() const { return !activation_.empty() && !is_activated_; }

  std::string name_;
  std::size_t index_;
  std::int64_t width_;  // values per position
  std::int64_t positions_;
  model::Loss loss_;
  std::int64_t classes_;
  std::string_view activation_;       // activation of the loss
  bool is_activated_;                 // whether the network ends in `activation_`
  std::vector<std::string> names_;    // class names; empty if unknown
  std::vector<std::string> targets_;  // target names in the training data
};

/// The outputs named in the list `selected`, in its order; all if it is empty. With one loss,
/// `losses` is empty and `loss` belongs to the first output. Throws Error (input) for an unknown or
/// repeated name.
std::vector<PredictedOutput> predicted_outputs(const model::Network& network,
                                               const model::Loss& loss,
                                               std::span<const strategy::OutputLoss> losses,
                                               const train::DataNames& names,
                                               std::string_view selected);

/// A field of a CSV table, quoted if necessary (RFC 4180).
std::string csv_field(const std::string& text);
/// A JSON string, including its quotes.
std::string json_string(const std::string& text);

}  // namespace lockstep::inline v0::apps
