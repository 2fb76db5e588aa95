// lockstep evaluate and predict: a trained model on a data set.
#include <fmt/format.h>
#include <spdlog/logger.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "apps/lockstep/command_line/arguments.h"
#include "apps/lockstep/commands.h"
#include "apps/lockstep/evaluate/kept_columns.h"
#include "apps/lockstep/evaluate/prediction_file.h"
#include "apps/lockstep/restored.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json/json.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/directory.h"
#include "lockstep/checkpoint/files.h"
#include "lockstep/data/record/record_error.h"
#include "lockstep/data/sample/record_source.h"
#include "lockstep/data/source/image_folder_source.h"
#include "lockstep/data/table/schema.h"
#include "lockstep/strategy/replica/local_replicas.h"
#include "lockstep/train/callbacks/json_events.h"
#include "lockstep/train/callbacks/metric_text.h"
#include "lockstep/train/evaluation/evaluation.h"
#include "lockstep/train/input/data_names.h"
#include "lockstep/train/trainer.h"

namespace lockstep::inline v0::apps {
namespace {

/// The values of a classifier that a file has.
enum class PredictedValues { probabilities, logits };

struct EvaluateArguments {
  RestoredArguments restored;
  std::string follow;  ///< a directory of checkpoints; empty: one checkpoint is evaluated
};

struct PredictArguments {
  /// Without gradients, batches may be larger than those of a training; larger ones are faster.
  PredictArguments() { restored.data.global_batch = 512; }
  RestoredArguments restored;
  PredictionOptions file;
  PredictionFormat format = PredictionFormat::automatic;
  PredictedValues outputs = PredictedValues::probabilities;
  std::string select;        ///< names of outputs; empty: all
  std::string keep_columns;  ///< names of columns; empty: none
};

}  // namespace
}  // namespace lockstep::inline v0::apps

namespace lockstep::inline v0 {

template <>
inline constexpr auto kNamesOf<apps::PredictedValues> =
    enum_names<apps::PredictedValues>({{apps::PredictedValues::probabilities, "probabilities"},
                                       {apps::PredictedValues::logits, "logits"}});

template <>
struct Fields<apps::PredictionStyle> {
  static constexpr std::tuple list{Field{
      &apps::PredictionStyle::top,
      {"top", "Output", "Write only the K most probable classes of each record; 0: all outputs"},
      {.min = 0},
      {.value = "K"}}};
};

template <>
struct Fields<apps::PredictionOptions> {
  using Options = apps::PredictionOptions;
  static constexpr std::tuple list{
      Field{&Options::path,
            {"output", kCommonOptions,
             "File to write (required), FILE.csv, FILE.jsonl or FILE.tfrecord, or - for standard "
             "output (CSV, or JSON with --json): one line or tf.train.Example per record, in the "
             "order of the data set"},
            {},
            {.value = "FILE"}},
      Part{&Options::style}};
};

/// Options of `lockstep evaluate`.
template <>
struct Fields<apps::EvaluateArguments> {
  using Options = apps::EvaluateArguments;
  static constexpr std::tuple list{
      Part{&Options::restored},
      Field{&Options::follow,
            {"follow", kCommonOptions,
             "In place of --checkpoint: evaluate the newest checkpoint in DIR, and again whenever "
             "a training has saved a newer one, until this command is ended. DIR need not exist "
             "yet"},
            {},
            {.value = "DIR"}}};
};

/// Options of `lockstep predict`.
template <>
struct Fields<apps::PredictArguments> {
  using Options = apps::PredictArguments;
  static constexpr std::tuple list{
      Part{&Options::file},
      Part{&Options::restored},
      Field{&Options::select,
            {"select", "Output",
             "Outputs of the network to write, by name: OUTPUT[,OUTPUT...] (default: all)"},
            {},
            {.value = "LIST"}},
      Field{&Options::keep_columns,
            {"keep_columns", "Output",
             "Columns of the predicted table to write beside the predictions, such as an id, to a "
             "CSV file or JSON lines: COLUMN[,COLUMN...] (default: none)"},
            {},
            {.value = "LIST"}},
      Field{&Options::format,
            {"format", "Output",
             "Format of the file: csv, jsonl, tfrecord, or auto, by its extension"},
            {},
            {.value = "FORMAT"}},
      Field{&Options::outputs,
            {"outputs", "Output",
             "Values of a classifier in CSV and TFRecord files: probabilities, or logits, the "
             "outputs of the network"},
            {},
            {.value = "VALUES"}}};
};

}  // namespace lockstep::inline v0

namespace lockstep::inline v0::apps {
namespace {

/// Status of a run in which some of the data could not be read.
constexpr int kBadRecords = 3;

std::int64_t count_bad(const std::vector<train::BadFile>& files) {
  std::int64_t records = 0;
  for (const train::BadFile& file : files) records += file.records;
  return records;
}

/// Warns on the chief of what could not be read, and returns the exit status.
int status_of(const job::Session& session, const Restored& restored,
              const std::vector<train::BadFile>& files, const std::string& consequence) {
  const std::vector<data::DamagedFile> damaged = restored.dataset.source().info().damage;
  if (session.is_chief()) {
    if (!files.empty())
      session.logger()->warn(fmt::format(
          "{} of {} cannot be read and {}, such as: {}", count_bad(files),
          counted(restored.dataset.size(), "record"), consequence, files.front().first));
    for (const data::DamagedFile& file : damaged) session.logger()->warn(file.text());
  }
  return files.empty() && damaged.empty() ? 0 : kBadRecords;
}

// ---- evaluate

void print_json(const Restored& restored, const train::Evaluation& sums) {
  nlohmann::ordered_json event = {{"event", "evaluate"},
                                  {"checkpoint", restored.checkpoint.path.string()},
                                  {"step", restored.checkpoint.state.step},
                                  {"samples", sums.samples},
                                  {"records", restored.dataset.size()},
                                  {"loss", sums.loss()}};
  if (sums.rows() > sums.samples) event["positions"] = sums.positions();
  if (sums.has_accuracy()) {
    event["accuracy"] = sums.accuracy();
    if (sums.has_top5()) event["top5_accuracy"] = sums.top5_accuracy();
    event["correct"] = sums.correct;
  }
  train::add_metric_values(event, "", sums.values);
  if (const auto table = restored.dataset.source().info().table)
    event["table"] = table->summary_json();
  if (!sums.bad_files.empty()) event["bad_records"] = count_bad(sums.bad_files);
  event["world_size"] = restored.strategy->num_replicas_in_sync();
  event["parameter_hash"] = checkpoint::hex16(restored.trainer->parameter_hash());
  event["time"] = seconds_since_1970();
  fmt::print("{}\n", dump_json(event));
}

void print_text(const Restored& restored, const train::Evaluation& sums) {
  fmt::print("{} (step {}) on {}\n", printable(restored.checkpoint.path.native()),
             restored.checkpoint.state.step, printable(restored.dataset.description()));
  const double loss = sums.loss();
  fmt::print("loss {}", loss < 1e6 ? fmt::format("{:.6f}", loss) : fmt::format("{:.6g}", loss));
  if (sums.has_accuracy()) fmt::print(", accuracy {:.4f}", sums.accuracy());
  if (sums.has_top5()) fmt::print(", top-5 accuracy {:.4f}", sums.top5_accuracy());
  fmt::print("\n");
  if (const std::string line = train::metric_line(sums.values); !line.empty())
    fmt::print("{}\n", line);
  const auto class_output = train::output_of_classes(
      restored.trainer->network(), restored.trainer->replicas().loss(), restored.names);
  const auto classes = class_output ? restored.names.classes : std::vector<std::string>();
  fmt::print("{}", train::metric_tables(sums.values, classes, class_output.value_or("")));
  fmt::print("evaluated {} of {}{}\n", sums.samples, restored.dataset.size(),
             sums.rows() > sums.samples ? fmt::format(", {} positions", sums.positions()) : "");
}

int evaluate(job::Session& session, const RestoredArguments& arguments, const Restored& restored) {
  check_losses_known(restored.source, arguments.checkpoint);
  const train::Evaluation sums = restored.trainer->evaluate(restored.dataset, arguments.data.read);
  if (session.is_chief() && arguments.output.json) print_json(restored, sums);
  if (session.is_chief() && !arguments.output.json) print_text(restored, sums);
  return status_of(session, restored, sums.bad_files, "do not count");
}

/// The newest complete checkpoint in `directory` that the chief sees; empty if there is none.
/// Collective.
std::string newest_checkpoint(const job::Session& session, const std::string& directory) {
  std::string newest;
  if (session.is_chief()) {
    const std::vector<checkpoint::CheckpointInfo> found = checkpoint::list_checkpoints(directory);
    const auto complete = std::ranges::find_if(found, &checkpoint::CheckpointInfo::complete);
    if (complete != found.end()) newest = complete->path.string();
  }
  return session.all_gather(newest).front();
}

[[noreturn]] void follow(job::Session& session, const EvaluateArguments& arguments) {
  constexpr std::chrono::seconds kPause(1);
  std::string evaluated;
  for (bool has_waited = false;; std::this_thread::sleep_for(kPause)) {
    RestoredArguments one = arguments.restored;
    one.checkpoint = newest_checkpoint(session, arguments.follow);
    if (one.checkpoint.empty() && session.is_chief() && !std::exchange(has_waited, true))
      session.logger()->info(
          fmt::format("waiting for a checkpoint in {}", printable(arguments.follow)));
    if (std::exchange(evaluated, one.checkpoint) == one.checkpoint || one.checkpoint.empty())
      continue;
    std::optional<Restored> restored;
    try {
      restored.emplace(restore(session, one));
    } catch (const Error& error) {
      // The training may have removed it in the meantime.
      if (newest_checkpoint(session, arguments.follow) == one.checkpoint) throw;
      if (session.is_chief()) session.logger()->warn(fmt::format("{}; skipped", error.what()));
      continue;
    }
    evaluate(session, one, *restored);
    std::fflush(stdout);
  }
}

int evaluate(job::Session& session, const EvaluateArguments& arguments) {
  if (!arguments.follow.empty()) follow(session, arguments);
  return evaluate(session, arguments.restored, restore(session, arguments.restored));
}

// ---- predict

void report_predictions(const PredictArguments& arguments, const Restored& restored,
                        const PredictionFile& file, const std::vector<train::BadFile>& bad) {
  const std::int64_t records = file.records();
  const OutputArguments& output = arguments.restored.output;
  const bool is_printed = arguments.file.path == "-";
  const std::string checkpoint = restored.checkpoint.path.string();
  if (output.json && !is_printed) {
    nlohmann::ordered_json event = {{"event", "predict"},
                                    {"checkpoint", checkpoint},
                                    {"step", restored.checkpoint.state.step},
                                    {"records", records}};
    if (!bad.empty()) event["bad_records"] = count_bad(bad);
    event["output"] = arguments.file.path;
    event["time"] = seconds_since_1970();
    fmt::print("{}\n", dump_json(event));
  } else if (!output.quiet) {
    fmt::print(stderr, "lockstep: predicted {} of {} records with {}, written to {}\n", records,
               restored.dataset.size(), printable(checkpoint),
               is_printed ? "standard output" : printable(arguments.file.path));
  }
}

int predict(job::Session& session, const PredictArguments& arguments) {
  if (arguments.restored.embeddings && arguments.file.style.top > 0)
    throw Error(ErrorCategory::input, "command line",
                "expected --top without --embeddings, which are no classes", "got both");
  if (arguments.file.path != "-")
    require_not_read("--output", arguments.file.path, arguments.restored.data.data,
                     arguments.restored.data, "test");
  const Restored restored = restore(session, arguments.restored);
  const auto* images = dynamic_cast<const data::ImageFolderSource*>(&restored.dataset.source());
  FileNames file_names;
  if (images != nullptr)
    file_names = [images](std::int64_t record) { return images->name_of(record); };
  std::optional<PredictionFile> file;
  const bool embeddings = arguments.restored.embeddings;
  const std::vector<strategy::OutputLoss> none;
  auto outputs = predicted_outputs(
      restored.trainer->network(), embeddings ? model::MeanSquaredError() : restored.source.loss,
      embeddings ? none : restored.source.losses, restored.names, arguments.select);
  check_predictions(arguments.file, outputs);
  CopiedColumns copied =
      kept_columns(arguments.keep_columns, arguments.restored.data.data, restored.names.table);
  if (session.is_chief())
    file.emplace(arguments.file, std::move(outputs), std::move(file_names), std::move(copied));
  const auto bad = restored.trainer->predict(
      restored.dataset, [&](const train::Predictions& predictions) { file->add(predictions); },
      arguments.restored.data.read);
  if (file) {
    file->commit();
    report_predictions(arguments, restored, *file, bad);
  }
  return status_of(session, restored, bad, "have their errors in the predictions");
}

}  // namespace

void add_evaluate_command(CLI::App& program, const Invocation& invocation, int& status) {
  CLI::App* command = program.add_subcommand(
      "evaluate",
      "Evaluate a checkpoint on a data set, in one process or under mpirun\n\n"
      "Examples:\n"
      "  lockstep evaluate --checkpoint run --data fashion-mnist\n"
      "  lockstep evaluate --follow run --data fashion-mnist\n");
  const auto arguments = std::make_shared<EvaluateArguments>();
  add_restored_options(*command, fields_without(fields_of(*arguments), {"embeddings"}),
                       arguments->restored, "Print only warnings, errors and the metrics");
  command->callback([=, &status] {
    RestoredArguments& restored = arguments->restored;
    restored.repeats_metrics = true;
    if (!arguments->follow.empty() && !restored.checkpoint.empty())
      throw Error(ErrorCategory::input, "command line", "expected --checkpoint or --follow",
                  "got both");
    if (!arguments->follow.empty()) restored.checkpoint = arguments->follow;
    status = run_restored(invocation, restored,
                          [&](job::Session& session) { return evaluate(session, *arguments); });
  });
}

void add_predict_command(CLI::App& program, const Invocation& invocation, int& status) {
  CLI::App* command = program.add_subcommand(
      "predict",
      "Write the predictions of a checkpoint to a file, in one process or under mpirun; labels "
      "are not needed\n\n"
      "Examples:\n"
      "  lockstep predict --checkpoint run --data fashion-mnist --output out.csv\n"
      "  lockstep predict --checkpoint run --data photos --top 3 --output -\n");
  const auto arguments = std::make_shared<PredictArguments>();
  add_restored_options(*command, fields_without(fields_of(*arguments), {"metrics", "split"}),
                       arguments->restored, "Print only warnings and errors");
  command->callback([=, &status] {
    PredictionOptions& file = arguments->file;
    require_given("--output FILE.csv, FILE.jsonl or FILE.tfrecord", file.path);
    file.format = prediction_format(arguments->format, file.path, arguments->restored.output.json);
    file.style.logits = arguments->outputs == PredictedValues::logits;
    file.has_errors = arguments->restored.data.bad_records.has_value();
    file.has_columns = !arguments->keep_columns.empty();
    if (arguments->restored.embeddings && !arguments->select.empty())
      throw Error(ErrorCategory::input, "command line", "expected --select without --embeddings",
                  "got both");
    arguments->restored.data.open.may_lack_labels = true;
    status = run_restored(invocation, arguments->restored,
                          [&](job::Session& session) { return predict(session, *arguments); });
  });
}

}  // namespace lockstep::inline v0::apps
