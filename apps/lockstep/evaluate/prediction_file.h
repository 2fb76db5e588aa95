// The output file of `lockstep predict`.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/lockstep/evaluate/predicted_output.h"
#include "lockstep/base/enum_names.h"
#include "lockstep/base/file/atomic_file.h"
#include "lockstep/train/evaluation/evaluation.h"

namespace lockstep::inline v0::apps {

enum class PredictionFormat { automatic, csv, jsonl, tfrecord };

/// The format `chosen`; for `automatic`, the format of the extension of `path`. Standard output
/// ("-") is CSV, or JSON lines with `json`. Throws Error (input) for another extension.
PredictionFormat prediction_format(PredictionFormat chosen, const std::string& path, bool json);

struct PredictionOptions {
  std::string path;  ///< "-" is standard output
  PredictionFormat format = PredictionFormat::csv;
  PredictionStyle style = {};
  /// Whether unreadable records have rows with their errors; CSV then has a column "error".
  bool has_errors = false;
  bool has_columns = false;  ///< whether columns are copied
};

/// The file name of a record.
using FileNames = std::function<std::string(std::int64_t record)>;

/// Columns of a table that are copied beside the predictions.
struct CopiedColumns {
  std::vector<std::string> names = {};
  /// The fields of a record, in the order of `names`. Records are passed in ascending order.
  std::function<std::vector<std::string>(std::int64_t record)> fields = {};
};

/// Predictions in record order, one line or tf.train.Example per record. For a classifier: the
/// record id, the predicted class and its name if known, the probabilities, and in JSON also the
/// logits, which differ even if probabilities are rounded to 0 or 1. Otherwise: the record id and
/// the outputs, in columns named after the targets if known. With a class at each position, the
/// predicted classes and their probabilities are lists. Several network outputs have columns and
/// features OUTPUT.NAME, and one JSON object each. The file appears only when it is complete,
/// unless it is standard output. Throws Error (data) with the path.
///
///     record,predicted,probability_0,probability_1,file,class
///     {"record":0,"predicted":1,"probability":0.75,"probabilities":[0.25,0.75],
///      "logits":[-1.5,-0.4],"file":"1.jpg","class":"pear"}
///     record,kind.predicted,kind.probability_0,kind.probability_1,price.output_0
///     {"record":0,"kind":{"predicted":1,"probability":0.75,…},"price":{"outputs":[2.5]}}
///
/// Copied columns follow the record id, in JSON as the object "columns":
///
///     record,PassengerId,predicted,probability_0,probability_1
///     {"record":0,"columns":{"PassengerId":"892"},"predicted":1,…}
///
/// An unreadable record has its id, its file and the error; the other CSV fields are empty:
///
///     3,,,,2.jpg,,[photos/2.jpg] expected a usable image; …
///     {"record":3,"file":"2.jpg","error":"[photos/2.jpg] expected a usable image; …"}
class PredictionFile {
 public:
  /// `file_names`: null if records are not files. Throws the errors of check_predictions().
  PredictionFile(const PredictionOptions& options, std::vector<PredictedOutput> outputs,
                 FileNames file_names, CopiedColumns copied = {});

  void add(const train::Predictions& predictions);
  /// Renames the temporary file to its final name.
  void commit() {
    if (file_) file_->commit();
  }
  std::int64_t records() const { return records_; }  ///< number of predictions

 private:
  struct Row;
  void write(const std::string& text);
  /// "" for a single output, else "OUTPUT.".
  std::string prefix(const PredictedOutput& output) const;
  std::string header() const;
  /// The line, or the tf.train.Example, of a record.
  std::string text_of(const Row& row) const;
  std::string csv_line(const Row& row) const;
  std::string json_line(const Row& row) const;
  std::string example(const Row& row) const;

  PredictionOptions options_;
  std::vector<PredictedOutput> outputs_;
  FileNames file_names_;
  CopiedColumns copied_;
  std::unique_ptr<AtomicFile> file_;  // null: standard output
  std::int64_t records_ = 0;
  bool has_rows_ = false;
};

/// Throws Error (input) for `top` if no output has classes, for outputs whose names are reserved in
/// JSON lines, and for copied columns in TFRecord files. Behaves the same on all ranks.
void check_predictions(const PredictionOptions& options, std::span<const PredictedOutput> outputs);

}  // namespace lockstep::inline v0::apps

namespace lockstep::inline v0 {

template <>
inline constexpr auto kNamesOf<apps::PredictionFormat> =
    enum_names<apps::PredictionFormat>({{apps::PredictionFormat::automatic, "auto"},
                                        {apps::PredictionFormat::csv, "csv"},
                                        {apps::PredictionFormat::jsonl, "jsonl"},
                                        {apps::PredictionFormat::tfrecord, "tfrecord"}});

}  // namespace lockstep::inline v0
