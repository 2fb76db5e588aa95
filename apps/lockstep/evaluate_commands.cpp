// lockstep evaluate and predict: a trained model on a data set.
#include <fmt/format.h>
#include <spdlog/logger.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "apps/lockstep/arguments.h"
#include "apps/lockstep/commands.h"
#include "apps/lockstep/model_source.h"
#include "apps/lockstep/output_arguments.h"
#include "apps/lockstep/prediction_file.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/files.h"
#include "lockstep/data/source/image_folder_source.h"
#include "lockstep/job/delayed_termination.h"
#include "lockstep/job/device_share.h"
#include "lockstep/model/parameters.h"
#include "lockstep/model/zoo/zoo.h"
#include "lockstep/strategy/callbacks/json_events.h"
#include "lockstep/strategy/callbacks/metric_text.h"
#include "lockstep/strategy/evaluation.h"
#include "lockstep/strategy/fit/data_fit.h"
#include "lockstep/strategy/replica/local_replicas.h"
#include "lockstep/strategy/strategies.h"
#include "lockstep/strategy/trainer.h"

namespace lockstep::apps {
namespace {

struct RestoredArguments {
  std::string checkpoint;
  std::string script;  ///< --model
  DataArguments data;
  PlaceArguments place;
  OutputArguments output;
  model::Precision precision = model::Precision::float32;
  std::string metrics;      ///< of evaluate
  bool embeddings = false;  // without the last layer
};

/// A trained model on its replicas, and the batched data set in record order.
struct Restored {
  std::unique_ptr<strategy::Strategy> strategy;
  ModelSource source;
  data::Dataset dataset;
  std::unique_ptr<strategy::Trainer> trainer;
  checkpoint::RestoredCheckpoint checkpoint;
  strategy::DataNames names;  ///< of the training data
};

/// Runs `work(session)` on every rank and returns the exit status. Throws Error (input) for a
/// required option that was not given.
template <typename Work>
int run_restored(const Invocation& invocation, const RestoredArguments& arguments, Work work) {
  require_given("--checkpoint DIR", arguments.checkpoint);
  require_given("--data", arguments.data.data);
  job::Session session(
      invocation.argc, invocation.argv,
      {.quiet = arguments.output.quiet, .stall_timeout = arguments.place.options.stall_timeout});
  const job::DelayedTermination late(session);
  return session.guard([&] { return work(session); });
}

void add_restored_options(CLI::App& command, RestoredArguments& arguments, const char* quiet) {
  command
      .add_option(
          "--checkpoint", arguments.checkpoint,
          "A directory of checkpoints (the newest is used), DIR:best (the best one of a training "
          "with --keep-best), or a single checkpoint; required")
      ->type_name("DIR")
      ->group(kCommonOptions);
  command
      .add_option("--model", arguments.script,
                  "Of a training of a TorchScript file: where the file is now (default: where it "
                  "was)")
      ->type_name("FILE.pt")
      ->group(kCommonOptions);
  add_data_options(command, arguments.data);
  add_place_options(command, arguments.place);
  add_precision_option(command, arguments.precision);
  add_output_options(command, arguments.output, quiet);
}

strategy::ReadOptions read_options(const DataArguments& data) {
  return {.prefetch = data.prefetch, .data_threads = data.threads};
}

/// The number of classes and the image preprocessing default to those of the model's training.
/// A table is read as that of the training, `names`.
data::Dataset open_test_data(DataArguments data, const ModelSource& source,
                             const strategy::DataNames& names) {
  data.open.table = names.table;
  data.open.text = names.text;
  data.open.scales_tables = names.table != nullptr;  // for a table with like=
  data.open.tfrecord.trained_input = source.input_feature;
  data.open.tfrecord.trained_shape = source.stored_shape;
  std::int64_t& classes = data.open.tfrecord.classes;
  if (classes == 0 && source.loss_count == 1 &&
      std::holds_alternative<model::SparseCategoricalCrossentropy>(source.loss)) {
    classes = source.outputs;
    data.open.tfrecord.classes_by_name = !names.classes.empty();
  }
  const bool as_trained = !data.images && source.test_images;
  if (!data.images && !as_trained) data.images = source.images;
  const data::Dataset opened = open_dataset(data, data.data, "test", 1);
  return (as_trained ? opened.images(*source.test_images) : opened).batch(data.global_batch);
}

/// On the chief.
void warn_of_maps(const job::Session& session, const ModelSource& source) {
  if (source.mapped.empty() || !session.is_chief()) return;
  session.logger()->warn(
      "the model was trained on mapped data ({}), which only the program that trained it can "
      "repeat: the results here are those of unmapped data",
      source.mapped);
}

/// On the chief.
void warn_of_unscaled(const job::Session& session, const strategy::DataNames& names,
                      const data::Dataset& dataset) {
  const std::string preparation = names.table ? names.table->preparation() : "";
  if (preparation.empty() || dataset.source().table() || !session.is_chief()) return;
  session.logger()->warn(
      "the model was trained on a table ({}), and {} is not one: its numbers are used as stored",
      preparation.substr(2), dataset.description());
}

/// Copies the arrays of `to` from those of the same names.
void copy_arrays(const model::ParameterTable& from, std::span<const float> values,
                 const model::ParameterTable& to, std::span<float> target) {
  for (const model::ParameterInfo& entry : to.entries()) {
    const model::ParameterInfo* const found = from.find(entry.name);
    LOCKSTEP_CHECK(found != nullptr);
    std::ranges::copy(model::ParameterTable::slice(values, *found),
                      model::ParameterTable::slice(target, entry).begin());
  }
}

/// A trainer with the weights of `whole`, which are the moving averages if the training had them.
/// Its network is that of `whole` without its last layer.
std::unique_ptr<strategy::Trainer> without_head(strategy::Strategy& strategy,
                                                strategy::Trainer& whole) {
  auto trainer = std::make_unique<strategy::Trainer>(
      strategy, zoo::features_of(whole.network()),
      strategy::TrainerOptions{.precision = whole.options().precision});
  const checkpoint::ReplicaArrays from = whole.replicas().arrays(false);
  const checkpoint::ReplicaArrays to = trainer->replicas().arrays(false);
  copy_arrays(*from.parameter_table, from.parameters, *to.parameter_table, to.parameters);
  copy_arrays(*from.buffer_table, from.buffers, *to.buffer_table, to.buffers);
  trainer->replicas().spread();
  return trainer;
}

/// Loads the checkpoint and opens the data set. Throws Error. Collective.
Restored restore(job::Session& session, const RestoredArguments& arguments) {
  const PlaceArguments& place = arguments.place;
  auto strategy = strategy::make_strategy(
      session, place.strategy,
      job::choose_devices(session, place.devices, place.options.share_gpus), place.options);
  ModelSource source = model_of_checkpoint(*strategy, arguments.checkpoint, arguments.script);
  model::Network network = source.make();
  strategy::TrainerOptions options{
      .loss = source.loss, .losses = source.losses, .precision = arguments.precision};
  add_metrics(arguments.metrics, network, options);
  auto trainer = std::make_unique<strategy::Trainer>(*strategy, std::move(network), options);
  checkpoint::RestoredCheckpoint checkpoint = trainer->restore(arguments.checkpoint);
  auto names = strategy::DataNames::of(checkpoint.state);
  DataArguments data = arguments.data;
  data.open.tfrecord.exchange = strategy::index_exchange(*strategy);
  data::Dataset dataset = open_test_data(data, source, names);
  warn_of_maps(session, source);
  warn_of_unscaled(session, names, dataset);
  if (const auto text = dataset.source().text();
      text && names.text && text->content == names.text->content)
    strategy::note_tokenizer(*strategy, *text);
  if (arguments.embeddings) {
    strategy::check_same_features(dataset, names);
    names.targets.clear();
    trainer = without_head(*strategy, *trainer);
  }
  return {std::move(strategy), std::move(source),     std::move(dataset),
          std::move(trainer),  std::move(checkpoint), std::move(names)};
}

// ---- evaluate

void print_json(const Restored& restored, const strategy::Evaluation& sums) {
  nlohmann::ordered_json event = {{"event", "evaluate"},
                                  {"checkpoint", restored.checkpoint.path.string()},
                                  {"step", restored.checkpoint.state.step},
                                  {"samples", sums.samples},
                                  {"records", restored.dataset.size()},
                                  {"loss", sums.loss()}};
  if (sums.rows() > sums.samples) event["positions"] = sums.positions();
  if (sums.has_accuracy) {
    event["accuracy"] = sums.accuracy();
    event["top5_accuracy"] = sums.top5_accuracy();
    event["correct"] = sums.correct;
  }
  strategy::add_metric_values(event, "", sums.values);
  event["world_size"] = restored.strategy->num_replicas_in_sync();
  event["parameter_hash"] = checkpoint::hex16(restored.trainer->parameter_hash());
  event["time"] = seconds_since_1970();
  fmt::print("{}\n", dump_json(event));
}

void print_text(const Restored& restored, const strategy::Evaluation& sums) {
  fmt::print("{} (step {}) on {}\n", restored.checkpoint.path.string(),
             restored.checkpoint.state.step, restored.dataset.description());
  const double loss = sums.loss();
  fmt::print("loss {}", loss < 1e6 ? fmt::format("{:.6f}", loss) : fmt::format("{:.6g}", loss));
  if (sums.has_accuracy) fmt::print(", accuracy {:.4f}", sums.accuracy());
  if (sums.has_accuracy && restored.source.outputs > 5)  // else it is always 1
    fmt::print(", top-5 accuracy {:.4f}", sums.top5_accuracy());
  fmt::print("\n");
  if (const std::string line = strategy::metric_line(sums.values); !line.empty())
    fmt::print("{}\n", line);
  fmt::print("{}", strategy::metric_tables(sums.values, restored.names.classes));
  fmt::print("evaluated {} of {}{}\n", sums.samples, restored.dataset.size(),
             sums.rows() > sums.samples ? fmt::format(", {} positions", sums.positions()) : "");
}

int evaluate(job::Session& session, const RestoredArguments& arguments) {
  const Restored restored = restore(session, arguments);
  if (const ModelSource& source = restored.source; source.loss_count > 1 && source.losses.empty())
    throw Error(ErrorCategory::checkpoint, arguments.checkpoint,
                "expected a checkpoint that describes its losses",
                fmt::format("it describes one of {}: an earlier version wrote it, or its program "
                            "has a loss of its own; evaluate it there",
                            source.loss_count));
  const strategy::Evaluation sums =
      restored.trainer->evaluate(restored.dataset, read_options(arguments.data));
  if (!session.is_chief()) return 0;
  if (arguments.output.json)
    print_json(restored, sums);
  else
    print_text(restored, sums);
  return 0;
}

// ---- predict

struct PredictArguments {
  RestoredArguments restored;
  PredictionOptions file;
  std::string format = "auto";
  std::string outputs = "probabilities";
  std::string select;  ///< names of outputs; empty: all
};

void report_predictions(const PredictArguments& arguments, const Restored& restored,
                        std::int64_t records) {
  const OutputArguments& output = arguments.restored.output;
  const bool is_printed = arguments.file.path == "-";
  const std::string checkpoint = restored.checkpoint.path.string();
  if (output.json && !is_printed)
    fmt::print("{}\n", dump_json(nlohmann::ordered_json{{"event", "predict"},
                                                        {"checkpoint", checkpoint},
                                                        {"step", restored.checkpoint.state.step},
                                                        {"records", records},
                                                        {"output", arguments.file.path},
                                                        {"time", seconds_since_1970()}}));
  else if (!output.quiet)
    fmt::print(stderr, "lockstep: predicted {} of {} records with {}, written to {}\n", records,
               restored.dataset.size(), checkpoint,
               is_printed ? "standard output" : arguments.file.path);
}

int predict(job::Session& session, const PredictArguments& arguments) {
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
  if (session.is_chief()) file.emplace(arguments.file, std::move(outputs), std::move(file_names));
  restored.trainer->predict(
      restored.dataset, [&](const strategy::Predictions& predictions) { file->add(predictions); },
      read_options(arguments.restored.data));
  if (!file) return 0;
  file->commit();
  report_predictions(arguments, restored, file->records());
  return 0;
}

}  // namespace

void add_evaluate_command(CLI::App& program, const Invocation& invocation, int& status) {
  CLI::App* command = program.add_subcommand(
      "evaluate",
      "Evaluate a checkpoint on a data set, in one process or under mpirun\n\n"
      "Example:\n"
      "  lockstep evaluate --checkpoint run --data fashion-mnist\n");
  const auto arguments = std::make_shared<RestoredArguments>();
  add_restored_options(*command, *arguments, "Print only warnings, errors and the metrics");
  add_metrics_option(*command, arguments->metrics);
  command->callback([=, &status] {
    status = run_restored(invocation, *arguments,
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
  command
      ->add_option("--output", arguments->file.path,
                   "File to write (required), FILE.csv, FILE.jsonl or FILE.tfrecord, or - for "
                   "standard output (CSV, or JSON with --json): one line or tf.train.Example per "
                   "record, in the order of the data set")
      ->type_name("FILE")
      ->group(kCommonOptions);
  command
      ->add_flag("--embeddings", arguments->restored.embeddings,
                 "Write the input of the last layer with parameters instead of predictions")
      ->group(kCommonOptions);
  command
      ->add_option("--select", arguments->select,
                   "Outputs of the network to write, by name: OUTPUT[,OUTPUT...] (default: all)")
      ->type_name("LIST")
      ->group("Output");
  add_one_of(*command, "--format", arguments->format, {"auto", "csv", "jsonl", "tfrecord"},
             "Format of the file: csv, jsonl, tfrecord, or auto, by its extension")
      ->type_name("FORMAT")
      ->group("Output");
  add_one_of(*command, "--outputs", arguments->outputs, {"probabilities", "logits"},
             "Values of a classifier in CSV and TFRecord files: probabilities, or logits, the "
             "outputs of the network")
      ->type_name("VALUES")
      ->group("Output");
  add_at_least(*command, "--top", arguments->file.style.top, 1,
               "Write only the K most probable classes of each record (default: all outputs)")
      ->type_name("K")
      ->group("Output");
  add_restored_options(*command, arguments->restored, "Print only warnings and errors");
  command->callback([=, &status] {
    PredictionOptions& file = arguments->file;
    require_given("--output FILE.csv, FILE.jsonl or FILE.tfrecord", file.path);
    file.format = prediction_format(arguments->format, file.path, arguments->restored.output.json);
    file.style.logits = arguments->outputs == "logits";
    if (arguments->restored.embeddings && !arguments->select.empty())
      throw Error(ErrorCategory::input, "command line", "expected --select without --embeddings",
                  "got both");
    arguments->restored.data.open.may_lack_labels = true;
    status = run_restored(invocation, arguments->restored,
                          [&](job::Session& session) { return predict(session, *arguments); });
  });
}

}  // namespace lockstep::apps
