// Predictions as a file: .csv or .jsonl.
#pragma once

#include <filesystem>
#include <memory>
#include <span>

#include "lockstep/base/atomic_file.h"
#include "lockstep/strategy/evaluation.h"

namespace lockstep::apps {

/// One line a record: its id, for a classifier the predicted class and the probabilities of all classes, else the
/// outputs. The file appears when it is complete. Errors are Error (data) with the path.
///
///     record,predicted,probability_0,probability_1      {"record":0,"predicted":1,"probabilities":[0.25,0.75]}
class PredictionFile {
 public:
  /// Throws Error (input) unless `path` ends in .csv or .jsonl. `width` outputs a record; `classes` tells whether they
  /// are logits.
  PredictionFile(const std::filesystem::path& path, std::int64_t width, bool classes);

  void add(const strategy::Predictions& predictions);
  /// Gives the file its name.
  void commit() { file_->commit(); }
  std::int64_t records() const { return records_; }

 private:
  void write_header(std::int64_t width);
  std::string line(std::int64_t record, std::span<const float> outputs) const;

  bool csv_;
  bool classes_;
  std::unique_ptr<AtomicFile> file_;
  std::int64_t records_ = 0;
};

/// exp(x) / sum of exp(x), computed so that it cannot overflow.
std::vector<double> softmax(std::span<const float> logits);

}  // namespace lockstep::apps
