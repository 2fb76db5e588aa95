// The epochs of a training as a CSV table.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/log.h"
#include "lockstep/train/callbacks/callback.h"

namespace lockstep::inline v0::train {

/// Writes a row per epoch, as Keras's CSVLogger does: epoch (from 0), step, the metrics under their
/// names in JSON events, learning_rate, samples_per_second, seconds, the mean seconds of each part
/// of a step (step_input, step_compute, ...), bound_by (Verdict), and the scalars that callbacks
/// logged since the last row. A value that is missing or not finite is an empty cell. Names with
/// commas, quotes or line breaks are quoted as in RFC 4180. Use only on the chief, after the
/// callbacks that log scalars.
///
/// A run that resumes continues the table of the earlier run: an epoch has one row, rows after the
/// restored step are removed, and new columns are appended. Otherwise the file is replaced. It is
/// rewritten atomically after each epoch. A write error does not end the training: the first one is
/// logged as a warning, and the next epoch tries again.
class CsvLog final : public Callback {
 public:
  /// `logger`: receives the warning; null for standard error.
  explicit CsvLog(std::filesystem::path file, std::shared_ptr<Logger> logger = nullptr);

  /// Throws Error (data) if the file cannot be written, or if the training resumes and the file is
  /// not such a table.
  void on_train_begin(const TrainBegin& begin) override;
  void on_epoch_end(const EpochLogs& logs) override;  ///< writes the row
  void on_scalar(const ScalarLogs& logs) override;    ///< adds the scalar to the next row
  bool may_stop_at_batches() const override { return false; }

 private:
  struct Row {
    std::int64_t epoch = 0;
    std::int64_t step = 0;
    std::map<std::string, std::string, std::less<>> cells;  // by column
  };

  void read(std::int64_t first_step);
  void add_column(const std::string& column);  // unless it exists
  void add(Row& row, const std::string& column, std::optional<double> value);
  void write() const;

  std::filesystem::path file_;
  std::shared_ptr<Logger> logger_;
  bool warned_ = false;
  std::vector<std::string> metrics_;
  std::vector<std::string> columns_;  // after epoch and step
  std::vector<Row> rows_;
  std::map<std::string, double> scalars_;  // since the last row
};

}  // namespace lockstep::inline v0::train
