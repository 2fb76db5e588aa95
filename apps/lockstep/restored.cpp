#include "apps/lockstep/restored.h"

#include <fmt/format.h>
#include <spdlog/logger.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>
#include <variant>

#include "apps/lockstep/command_line/output_arguments.h"
#include "lockstep/base/error.h"
#include "lockstep/data/sample/record_source.h"
#include "lockstep/job/placement/device_share.h"
#include "lockstep/model/tensor/parameters.h"
#include "lockstep/model/zoo/zoo.h"
#include "lockstep/strategy/replica/local_replicas.h"
#include "lockstep/strategy/strategies.h"
#include "lockstep/train/fit/fit_state.h"
#include "lockstep/train/input/data_warnings.h"

namespace lockstep::inline v0::apps {
namespace {

/// Called on the chief only.
void warn_of_maps(const job::Session& session, const ModelSource& source) {
  if (source.mapped.empty() || !session.is_chief()) return;
  session.logger()->warn(fmt::format(
      "the model was trained on mapped data ({}), which only the program that trained it can "
      "repeat: the results here are those of unmapped data",
      source.mapped));
}

/// Called on the chief only.
void warn_of_unscaled(const job::Session& session, const train::DataNames& names,
                      const data::Dataset& dataset) {
  const std::string preparation = names.table ? names.table->preparation() : "";
  if (preparation.empty() || dataset.source().info().table || !session.is_chief()) return;
  session.logger()->warn(fmt::format(
      "the model was trained on a table ({}), and {} is not one: its numbers are used as stored",
      preparation.substr(2), dataset.description()));
}

/// The split of the training. Throws Error (input) if there was none.
data::RecordSplit split_of(const checkpoint::RestoredCheckpoint& checkpoint) {
  const auto stored = checkpoint.state.configuration->find(train::kSplitKey);
  if (stored == checkpoint.state.configuration->end())
    throw Error(ErrorCategory::input, "command line",
                "expected no --split for a model that was trained without --validation-split and "
                "--test-split",
                "got --split");
  return {.validation = stored->value("validation", 0.0),
          .test = stored->value("test", 0.0),
          .seed = checkpoint.state.seed};
}

/// Throws Error (data) unless all parts together have the records of the training.
void check_size(const data::Dataset& dataset, const checkpoint::RestoredCheckpoint& checkpoint) {
  const std::int64_t records = dataset.source().info().split->total();
  const auto expected =
      checkpoint.state.configuration->at(train::kSplitKey).value("records", records);
  if (records != expected)
    throw Error(
        ErrorCategory::data, dataset.description(),
        fmt::format("expected the data set of the training, {} records, with --split", expected),
        fmt::format("got {}", records));
}

/// Copies the arrays of `to` from those of the same names in `from`.
void copy_arrays(const model::ParameterTable& from, std::span<const float> values,
                 const model::ParameterTable& to, std::span<float> target) {
  for (const model::ParameterInfo& entry : to.entries()) {
    const model::ParameterInfo* const found = from.find(entry.name);
    LOCKSTEP_CHECK(found != nullptr);
    std::ranges::copy(model::ParameterTable::slice(values, *found),
                      model::ParameterTable::slice(target, entry).begin());
  }
}

}  // namespace

void add_restored_options(CLI::App& command, const std::vector<BoundField>& fields,
                          RestoredArguments& arguments, const char* quiet) {
  // CLI11 lists the group of the first option first, and --help is the first.
  command.get_help_ptr()->group(kCommonOptions);
  add_fields(command, fields);
  add_fields(command, fields_with(fields_of(arguments.compute), {"precision"}));
  add_output_options(command, arguments.output, quiet);
}

data::Dataset open_test_data(DataArguments data, const ModelSource& source,
                             const train::DataNames& names) {
  data.open.table = names.table;
  data.open.text = names.text;
  const bool as_trained = !data.images && source.test_images;
  data.autoencodes = source.autoencodes && !as_trained;
  data.open.scales_tables = names.table != nullptr;  // for a table with like=
  data.open.tfrecord.trained_input = source.input_feature;
  if (!source.input_feature.empty() || !data.images)
    data.open.tfrecord.trained_shape = source.stored_shape;
  std::int64_t& classes = data.open.tfrecord.classes;
  if (classes == 0 && source.loss_count == 1 &&
      std::holds_alternative<model::SparseCategoricalCrossentropy>(source.loss)) {
    classes = source.outputs;
    data.open.tfrecord.classes_by_name = !names.classes.empty();
  }
  if (!data.images && !as_trained) data.images = source.images;
  const std::uint64_t seed = data.open.split ? data.open.split->split.seed : 1;
  data.open.may_lack_labels = data.open.may_lack_labels || source.autoencodes;
  data::Dataset dataset = open_dataset(data, data.data, "test", seed);
  if (as_trained) dataset = dataset.images(*source.test_images);
  if (as_trained && source.autoencodes) dataset = dataset.autoencode();
  return dataset.batch(data.global_batch);
}

std::unique_ptr<train::Trainer> trainer_with(strategy::Strategy& strategy, model::Network network,
                                             const checkpoint::ReplicaArrays& from,
                                             const strategy::TrainerOptions& options) {
  auto trainer = std::make_unique<train::Trainer>(strategy, std::move(network), options);
  const checkpoint::ReplicaArrays to = trainer->replicas().arrays(false);
  copy_arrays(*from.parameter_table, from.parameters, *to.parameter_table, to.parameters);
  copy_arrays(*from.buffer_table, from.buffers, *to.buffer_table, to.buffers);
  trainer->replicas().broadcast_parameters();
  return trainer;
}

void check_losses_known(const ModelSource& source, const std::string& path) {
  if (source.loss_count > 1 && source.losses.empty())
    throw Error(ErrorCategory::checkpoint, path, "expected a checkpoint that describes its losses",
                fmt::format("it describes one of {}: its program has a loss of its own; evaluate "
                            "it there",
                            source.loss_count));
}

Restored restore(job::Session& session, const RestoredArguments& arguments) {
  const PlaceArguments& place = arguments.place;
  auto strategy = strategy::make_strategy(
      session, place.strategy,
      job::choose_devices(session, place.devices, place.options.share_gpus), place.options);
  ModelSource source = model_of_checkpoint(*strategy, arguments.checkpoint, arguments.code);
  model::Network network = source.make();
  strategy::TrainerOptions options{
      .loss = source.loss, .losses = source.losses, .compute = arguments.compute};
  const bool repeats = arguments.metrics.empty() && arguments.repeats_metrics;
  add_metrics(repeats ? source.metrics : arguments.metrics, network, options);
  auto trainer = std::make_unique<train::Trainer>(*strategy, std::move(network), options);
  checkpoint::RestoredCheckpoint checkpoint = trainer->restore(arguments.checkpoint);
  auto names = train::DataNames::of(checkpoint.state);
  DataArguments data = arguments.data;
  data.open.tfrecord.exchange = strategy::index_exchange(*strategy);
  data.open.log = session.logger();
  if (arguments.split) data.open.split = {split_of(checkpoint), *arguments.split};
  data::Dataset dataset = open_test_data(data, source, names);
  if (arguments.split) check_size(dataset, checkpoint);
  warn_of_maps(session, source);
  warn_of_unscaled(session, names, dataset);
  train::report_table(*strategy, dataset, names.table.get());
  if (const auto text = dataset.source().info().text;
      text && names.text && text->content == names.text->content)
    train::log_tokenizer_source(*strategy, *text);
  if (arguments.embeddings) {
    train::check_same_features(dataset, names);
    names.targets.clear();
    trainer = trainer_with(*strategy, zoo::features_of(trainer->network()),
                           trainer->replicas().arrays(false), {.compute = arguments.compute});
  }
  return {std::move(strategy), std::move(source),     std::move(dataset),
          std::move(trainer),  std::move(checkpoint), std::move(names)};
}

}  // namespace lockstep::inline v0::apps
