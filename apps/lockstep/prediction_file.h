// The file of `lockstep predict`.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/atomic_file.h"
#include "lockstep/model/loss.h"
#include "lockstep/model/tensor.h"
#include "lockstep/strategy/fit/data_fit.h"
#include "lockstep/strategy/trainer_options.h"

namespace lockstep::apps {

enum class PredictionFormat { csv, jsonl, tfrecord };

/// The format `name`, or with "auto" that of the extension of `path`, where "-" is standard output:
/// CSV, or with `json` JSON lines. Throws Error (input) for another extension.
PredictionFormat prediction_format(std::string_view name, const std::string& path, bool json);

struct PredictionOptions {
  std::string path;  ///< "-" is standard output
  PredictionFormat format = PredictionFormat::csv;
  bool logits = false;   ///< in CSV and TFRecord the outputs of the network, not probabilities
  std::int64_t top = 0;  ///< only the most probable classes, this many; 0: all outputs
};

/// The file name of a record.
using FileNames = std::function<std::string(std::int64_t record)>;

/// Predictions in record order, one line or tf.train.Example per record: its id; for a classifier,
/// the predicted class, probabilities, in JSON also the logits, which differ where probabilities
/// are rounded to 0 or 1, and the name of the predicted class if it is known; otherwise the
/// outputs, in columns with the names of the targets if they are known. The file appears only when
/// it is complete, unless it is standard output. Throws Error (data) with the path. Of a class at
/// each position of a record, lists of the predicted classes and their probabilities.
///
///     record,predicted,probability_0,probability_1,file,class
///     {"record":0,"predicted":1,"probability":0.75,"probabilities":[0.25,0.75],
///      "logits":[-1.5,-0.4],"file":"1.jpg","class":"pear"}
class PredictionFile {
 public:
  /// `output`: the shape of the network's output. `names`: of the training data. `file_names`: null
  /// if records are no files. Throws Error (input) for `top` if there are no classes, and for CSV,
  /// `top` and `logits` if there is a class at each position.
  PredictionFile(const PredictionOptions& options, const model::Shape& output,
                 const model::Loss& loss, const strategy::DataNames& names, FileNames file_names);

  void add(const strategy::Predictions& predictions);
  /// Renames the temporary file to its final name.
  void commit() {
    if (file_) file_->commit();
  }
  std::int64_t records() const { return records_; }

 private:
  struct Row;
  Row row_of(std::int64_t record, std::span<const float> outputs) const;
  void write(const std::string& text);
  std::string header(std::int64_t width) const;
  std::string csv_line(const Row& row) const;
  std::string json_line(const Row& row) const;
  std::string example(const Row& row) const;
  /// JSON line or Example of a record with several positions.
  std::string text_of_positions(std::int64_t record, std::span<const float> outputs) const;
  std::string class_text(std::int64_t number) const;

  PredictionOptions options_;
  std::int64_t width_;                // outputs of a record, or of a position
  bool has_positions_;                // several in a record
  std::int64_t classes_;              // 0: no classifier
  std::string_view activation_;       // of the loss
  std::vector<std::string> names_;    // of the classes; empty if unknown
  std::vector<std::string> targets_;  // of the training data
  FileNames file_names_;
  std::unique_ptr<AtomicFile> file_;  // null: standard output
  std::int64_t records_ = 0;
};

}  // namespace lockstep::apps
