// A trained model of a checkpoint and a data set, the common part of evaluate, predict and
// quantize.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/lockstep/command_line/arguments.h"
#include "apps/lockstep/commands.h"
#include "apps/lockstep/model_source.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/data/dataset.h"
#include "lockstep/job/session.h"
#include "lockstep/model/metrics/make_metrics.h"
#include "lockstep/strategy/strategy.h"
#include "lockstep/train/input/data_names.h"
#include "lockstep/train/trainer.h"

namespace lockstep::inline v0::apps {

struct RestoredArguments {
  std::string checkpoint;
  CodeArguments code;  ///< --model, --trust-code
  DataArguments data;
  PlaceArguments place;
  OutputArguments output;
  model::ComputeOptions compute;  ///< --precision
  std::string metrics;            ///< --metrics of evaluate
  bool repeats_metrics = false;   ///< without `metrics`, measure those of the training
  bool embeddings = false;        ///< omit the last layer
  /// --split of evaluate: the part of the training's data set; nullopt: all of it.
  std::optional<data::SplitPart> split = {};
};

/// A trained model on its replicas, and the batched data set in record order.
struct Restored {
  std::unique_ptr<strategy::Strategy> strategy;
  ModelSource source;
  data::Dataset dataset;
  std::unique_ptr<train::Trainer> trainer;
  checkpoint::RestoredCheckpoint checkpoint;
  train::DataNames names;  ///< names in the training data
};

/// Runs `work(session)` on every rank and returns the exit status. Throws Error (input) if a
/// required option is missing.
template <typename Work>
int run_restored(const Invocation& invocation, const RestoredArguments& arguments, Work work) {
  require_given("--checkpoint DIR", arguments.checkpoint);
  require_given("--data", arguments.data.data);
  return run_session(invocation,
                     {.quiet = arguments.output.quiet,
                      .stall_timeout = arguments.place.options.stall_timeout,
                      .start_timeout = arguments.place.start_timeout,
                      .transport = arguments.place.transport},
                     work);
}

/// Declares `fields`, --precision and the options of the output. `quiet`: help of --quiet.
void add_restored_options(CLI::App& command, const std::vector<BoundField>& fields,
                          RestoredArguments& arguments, const char* quiet);

/// The number of classes and the image preprocessing default to those of the model's training.
/// A table is read with the columns of the training data, `names`.
data::Dataset open_test_data(DataArguments data, const ModelSource& source,
                             const train::DataNames& names);

/// Loads the checkpoint and opens the data set. Throws Error. Collective.
Restored restore(job::Session& session, const RestoredArguments& arguments);

/// Throws Error (checkpoint) unless the checkpoint `path` describes all losses of `source`.
void check_losses_known(const ModelSource& source, const std::string& path);

/// A trainer of `network`, whose arrays are initialized from those of the same names in `from`.
std::unique_ptr<train::Trainer> trainer_with(strategy::Strategy& strategy, model::Network network,
                                             const checkpoint::ReplicaArrays& from,
                                             const strategy::TrainerOptions& options);

}  // namespace lockstep::inline v0::apps

namespace lockstep::inline v0 {

template <>
inline constexpr auto kNamesOf<data::SplitPart> =
    enum_names<data::SplitPart>({{data::SplitPart::training, "training"},
                                 {data::SplitPart::validation, "validation"},
                                 {data::SplitPart::test, "test"}});

template <>
struct Fields<apps::RestoredArguments> {
  using Options = apps::RestoredArguments;
  using Values = std::span<const std::string>;
  static constexpr std::tuple list{
      Field{&Options::checkpoint, apps::kCheckpoint, {}, {.value = "DIR"}},
      Part{&Options::code},
      Part{&Options::data},
      TextField<Options>{
          {"bad_records", "Data",
           "What to do about records that cannot be read: fail at the first one, or skip:N to "
           "tolerate up to N, which do not count in metrics and have their errors in place of "
           "predictions; the exit status is then 3"},
          [](Options& options, std::string_view, Values values) {
            options.data.bad_records = apps::parse_bad_records(values.back());
          },
          [](const Options&) { return std::vector<std::string>{"fail"}; },
          {.value = "fail|skip:N"}},
      TextField<Options>{
          {"metrics", "Model", apps::kMetricsHelp},
          [](Options& options, std::string_view, Values values) {
            options.metrics = fmt::format("{}", fmt::join(values, ","));
          },
          [](const Options& options) { return fields_detail::print(options.metrics); },
          {.value = "LIST", .repeats = true, .names = model::metric_names}},
      TextField<Options>{
          {"split", "Data",
           "Evaluate one part of the training's --data, which --data names again: training, "
           "validation or test, as --validation-split and --test-split of the training divided it"},
          [](Options& options, std::string_view name, Values values) {
            options.split = kNamesOf<data::SplitPart>.parse(name, values.back());
          },
          [](const Options&) { return std::vector<std::string>(); },
          {.value = "PART"}},
      Field{&Options::embeddings,
            {"embeddings", kCommonOptions,
             "Write the input of the last layer with parameters instead of predictions"}},
      Part{&Options::place}};
};

}  // namespace lockstep::inline v0
