// What `evaluate` and `predict` have in common: a model of a checkpoint, and data for it.
#pragma once

#include <CLI/App.hpp>
#include <memory>
#include <string>

#include "apps/lockstep/arguments.h"
#include "apps/lockstep/model_source.h"
#include "lockstep/strategy/trainer.h"

namespace lockstep::apps {

struct RestoredArguments {
  std::string checkpoint;
  DataArguments data;
  PlaceArguments place;
  OutputArguments output;
  std::string precision = "float32";
};
void add_restored_options(CLI::App& command, RestoredArguments& arguments);

/// A trained model on its replicas, and the batched data set, in the order of its records.
struct Restored {
  std::unique_ptr<strategy::Strategy> strategy;
  ModelSource source;
  data::Dataset dataset;
  std::unique_ptr<strategy::Trainer> trainer;
  checkpoint::RestoredCheckpoint checkpoint;
};
/// Throws Error for what cannot be used. Collective.
Restored restore(job::Session& session, const RestoredArguments& arguments);

}  // namespace lockstep::apps
