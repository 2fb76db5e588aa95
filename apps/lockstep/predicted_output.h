// How the values of one output of a network are written: as probabilities of classes or of targets,
// or as they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/record/example.h"
#include "lockstep/model/loss.h"
#include "lockstep/model/network.h"
#include "lockstep/strategy/evaluation.h"
#include "lockstep/strategy/fit/data_names.h"
#include "lockstep/strategy/trainer_options.h"

namespace lockstep::apps {

/// How values of classes are written.
struct PredictionStyle {
  bool logits = false;   ///< in CSV and TFRecord the outputs of the network, not probabilities
  std::int64_t top = 0;  ///< only the most probable classes, this many; 0: all outputs
};

/// The values of one record.
struct PredictedRow {
  std::vector<float> outputs = {};
  /// Of the classes, or of each output; empty: neither. With positions, of the class of each.
  std::vector<double> probabilities = {};
  /// Classes, the most probable first, as many as are written; empty without classes. With
  /// positions, the most probable class of each.
  std::vector<std::int64_t> ranked = {};

  double probability() const { return probabilities[static_cast<std::size_t>(ranked.front())]; }
};

/// One output of a network. Its loss says what the values are: with softmax and sigmoid those of
/// cross-entropies become probabilities, unless the network ends in that activation itself; others
/// are written as they are.
class PredictedOutput {
 public:
  /// The output number `index`, with the loss of its training; without one, or with embeddings, a
  /// loss of values. `names` are those of the data of its target.
  PredictedOutput(const model::Network& network, std::size_t index, const model::Loss& loss,
                  const strategy::DataNames& names);

  const std::string& name() const { return name_; }
  std::size_t index() const { return index_; }
  std::int64_t classes() const { return classes_; }  ///< 0: no classifier
  const model::Loss& loss() const { return loss_; }
  /// Whether a record has a class at each of several positions.
  bool has_positions() const { return positions_ > 1; }
  /// Whether predicted_class() knows the class of a record.
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
  /// The name of the predicted class, of an output with class names.
  std::string predicted_class(const PredictedRow& row) const { return class_text(row.ranked[0]); }

 private:
  PredictedRow row_of_position(std::span<const float> outputs, const PredictionStyle& style) const;
  std::vector<std::string> classes_of(const PredictedRow& row) const;
  std::string class_text(std::int64_t number) const;
  std::string_view column_name(const PredictionStyle& style) const;
  bool has_logits() const { return !activation_.empty() && !is_activated_; }

  std::string name_;
  std::size_t index_;
  std::int64_t width_;  // of a position
  std::int64_t positions_;
  model::Loss loss_;
  std::int64_t classes_;
  std::string_view activation_;       // of the loss
  bool is_activated_;                 // whether the network ends in it
  std::vector<std::string> names_;    // of the classes; empty if unknown
  std::vector<std::string> targets_;  // of the training data
};

/// The outputs that `selected`, a list of names, chooses, in its order; all if it is empty. With
/// one loss, `losses` is empty and `loss` that of the first output. Throws Error (input) for a name
/// that the network does not have, or twice.
std::vector<PredictedOutput> predicted_outputs(const model::Network& network,
                                               const model::Loss& loss,
                                               std::span<const strategy::OutputLoss> losses,
                                               const strategy::DataNames& names,
                                               std::string_view selected);

/// A field of a CSV table, quoted where that is necessary (RFC 4180).
std::string csv_field(const std::string& text);
/// A string of JSON, with its quotes.
std::string json_string(const std::string& text);

}  // namespace lockstep::apps
