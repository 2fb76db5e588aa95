#include "apps/lockstep/prediction_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::apps {
namespace {

bool is_csv(const std::filesystem::path& path) {
  if (path.extension() == ".csv") return true;
  if (path.extension() == ".jsonl") return false;
  throw Error(ErrorCategory::input, "command line", "--output needs a file that ends in .csv or .jsonl",
              fmt::format("got \"{}\"", path.string()));
}

}  // namespace

std::vector<double> softmax(std::span<const float> logits) {
  std::vector<double> values(logits.begin(), logits.end());
  const double largest = *std::ranges::max_element(values);
  double sum = 0;
  for (double& value : values) sum += value = std::exp(value - largest);
  for (double& value : values) value /= sum;
  return values;
}

PredictionFile::PredictionFile(const std::filesystem::path& path, std::int64_t width, bool classes)
    : csv_(is_csv(path)), classes_(classes), file_(std::make_unique<AtomicFile>(path)) {
  remove_abandoned_temporaries(path.parent_path(), path.filename().native());
  if (csv_) write_header(width);
}

void PredictionFile::write_header(std::int64_t width) {
  std::string header = classes_ ? "record,predicted" : "record";
  for (std::int64_t i = 0; i < width; ++i) header += fmt::format(",{}_{}", classes_ ? "probability" : "output", i);
  file_->write(header + '\n');
}

void PredictionFile::add(const strategy::Predictions& predictions) {
  const auto width = static_cast<std::size_t>(predictions.width);
  std::string text;
  for (std::size_t i = 0; i < predictions.record_ids.size(); ++i)
    text += line(predictions.record_ids[i], predictions.outputs.subspan(i * width, width));
  file_->write(text);
  records_ += static_cast<std::int64_t>(predictions.record_ids.size());
}

std::string PredictionFile::line(std::int64_t record, std::span<const float> outputs) const {
  const auto predicted = std::ranges::max_element(outputs) - outputs.begin();
  const std::string values = classes_ ? fmt::format("{:.7g}", fmt::join(softmax(outputs), ","))
                                      : fmt::format("{:.9g}", fmt::join(outputs, ","));
  if (csv_)
    return classes_ ? fmt::format("{},{},{}\n", record, predicted, values) : fmt::format("{},{}\n", record, values);
  if (classes_)
    return fmt::format("{{\"record\":{},\"predicted\":{},\"probabilities\":[{}]}}\n", record, predicted, values);
  return fmt::format("{{\"record\":{},\"outputs\":[{}]}}\n", record, values);
}

}  // namespace lockstep::apps
