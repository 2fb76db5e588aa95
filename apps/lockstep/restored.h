// A trained model of a checkpoint and a data set, the common part of evaluate, predict and
// quantize.
#pragma once

#include <memory>
#include <string>

#include "apps/lockstep/arguments.h"
#include "apps/lockstep/commands.h"
#include "apps/lockstep/model_source.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/data/dataset.h"
#include "lockstep/job/session.h"
#include "lockstep/strategy/fit/data_names.h"
#include "lockstep/strategy/strategy.h"
#include "lockstep/strategy/trainer.h"

namespace lockstep::apps {

struct RestoredArguments {
  std::string checkpoint;
  CodeArguments code;  ///< --model, --trust-code
  DataArguments data;
  PlaceArguments place;
  OutputArguments output;
  model::ComputeOptions compute;  ///< --precision
  std::string metrics;            ///< --metrics of evaluate
  bool embeddings = false;        ///< omit the last layer
};

/// A trained model on its replicas, and the batched data set in record order.
struct Restored {
  std::unique_ptr<strategy::Strategy> strategy;
  ModelSource source;
  data::Dataset dataset;
  std::unique_ptr<strategy::Trainer> trainer;
  checkpoint::RestoredCheckpoint checkpoint;
  strategy::DataNames names;  ///< names in the training data
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
                      .start_timeout = arguments.place.start_timeout},
                     work);
}

/// Declares --checkpoint.
void add_checkpoint_option(CLI::App& command, std::string& checkpoint);

/// Declares the options of `arguments` that evaluate and predict share. `quiet`: help of --quiet.
void add_restored_options(CLI::App& command, RestoredArguments& arguments, const char* quiet);

/// The number of classes and the image preprocessing default to those of the model's training.
/// A table is read with the columns of the training data, `names`.
data::Dataset open_test_data(DataArguments data, const ModelSource& source,
                             const strategy::DataNames& names);

/// Loads the checkpoint and opens the data set. Throws Error. Collective.
Restored restore(job::Session& session, const RestoredArguments& arguments);

/// Throws Error (checkpoint) unless the checkpoint `path` describes all losses of `source`.
void check_losses_known(const ModelSource& source, const std::string& path);

/// A trainer of `network`, whose arrays are initialized from those of the same names in `from`.
std::unique_ptr<strategy::Trainer> trainer_with(strategy::Strategy& strategy,
                                                model::Network network,
                                                const checkpoint::ReplicaArrays& from,
                                                const strategy::TrainerOptions& options);

}  // namespace lockstep::apps
