#include "apps/lockstep/predict_command.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "apps/lockstep/model_source.h"
#include "lockstep/base/error.h"
#include "lockstep/job/delayed_termination.h"

namespace lockstep::apps {
namespace {

bool is_csv(const std::filesystem::path& path) {
  if (path.extension() == ".csv") return true;
  if (path.extension() == ".jsonl") return false;
  throw Error(ErrorCategory::input, "command line", "expected --output to end in .csv or .jsonl",
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

namespace {

struct PredictArguments {
  RestoredArguments restored;
  std::string output;
};

int predict(job::Session& session, const PredictArguments& arguments) {
  const Restored restored = restore(session, arguments.restored);
  const bool classes = restored.source.loss.kind != LossKind::mean_squared_error;
  std::optional<PredictionFile> file;
  if (session.is_chief())
    file.emplace(arguments.output, model::element_count(restored.trainer->network().output_shape()), classes);
  restored.trainer->predict(restored.dataset,
                            [&](const strategy::Predictions& predictions) { file->add(predictions); });
  if (!file) return 0;
  file->commit();
  if (!arguments.restored.output.quiet)
    fmt::print(stderr, "lockstep: predicted {} of {} records with {}, written to {}\n", file->records(),
               restored.dataset.size(), restored.checkpoint.path.string(), arguments.output);
  return 0;
}

}  // namespace

void add_predict_command(CLI::App& program, const Invocation& invocation, int& status) {
  CLI::App* command = program.add_subcommand(
      "predict", "Write the predictions of a checkpoint to a file, in one process or under mpirun");
  const auto arguments = std::make_shared<PredictArguments>();
  command->add_option("--output", arguments->output,
                      "File to write, FILE.csv or FILE.jsonl: one line per record, in the order of the data set");
  add_restored_options(*command, arguments->restored);
  command->callback([=, &status] {
    const RestoredArguments& restored = arguments->restored;
    require_given("--output FILE.csv or FILE.jsonl", arguments->output);
    check_restored_options(restored);
    job::Session session(invocation.argc, invocation.argv,
                         {.quiet = restored.output.quiet, .stall_timeout = restored.place.options.stall_timeout});
    const job::DelayedTermination late(session);
    status = session.guard([&] { return predict(session, *arguments); });
  });
}

}  // namespace lockstep::apps
