// Predictions in a .csv or .jsonl file.
#pragma once

#include <CLI/App.hpp>
#include <filesystem>
#include <memory>
#include <span>

#include "apps/lockstep/arguments.h"
#include "lockstep/base/atomic_file.h"
#include "lockstep/strategy/evaluation.h"

namespace lockstep::apps {

/// One line per record: its id; for a classifier, the predicted class and the probabilities of all classes; otherwise
/// the outputs. The file appears only when it is complete. Throws Error (data) with the path.
///
///     record,predicted,probability_0,probability_1      {"record":0,"predicted":1,"probabilities":[0.25,0.75]}
class PredictionFile {
 public:
  /// Throws Error (input) unless `path` ends in .csv or .jsonl. `width`: outputs per record. `classes`: whether the
  /// outputs are logits.
  PredictionFile(const std::filesystem::path& path, std::int64_t width, bool classes);

  void add(const strategy::Predictions& predictions);
  /// Renames the temporary file to its final name.
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

/// exp(x) / sum of exp(x), computed without overflow.
std::vector<double> softmax(std::span<const float> logits);

// lockstep predict

/// Adds the command. Its callback sets `status`, the exit status of the program.
void add_predict_command(CLI::App& program, const Invocation& invocation, int& status);

}  // namespace lockstep::apps
