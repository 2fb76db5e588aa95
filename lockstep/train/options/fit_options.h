// Options of Trainer::fit(), like those of fit() in Keras.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/fields/fields.h"
#include "lockstep/checkpoint/training_state.h"
#include "lockstep/data/dataset.h"
#include "lockstep/job/trace_options.h"
#include "lockstep/train/callbacks/callback.h"
#include "lockstep/train/callbacks/monitored_metric.h"
#include "lockstep/train/options/pretrained.h"

namespace lockstep::inline v0::train {

using job::parse_trace;
using job::TraceOptions;

/// Where and when checkpoints are written.
struct CheckpointPlan {
  std::filesystem::path directory = {};  ///< empty: no checkpoints
  /// Number of steps between checkpoints; 0: at the end of each epoch. The last step is always
  /// saved.
  std::int64_t save_every = 0;
  int keep = 3;  ///< number of healthy checkpoints to keep
  /// Keeps the checkpoint of the epoch or validation with the best value of this metric in addition
  /// to the newest ones. It is saved even between the steps of `save_every`.
  std::optional<MonitoredMetric> keep_best = {};
  /// With `keep_best`: fit() loads the parameters and moving statistics of the best checkpoint at
  /// its end, like Keras's restore_best_weights. Not if a signal ended it or there is no such
  /// checkpoint.
  bool restore_best = false;
  /// Whether to resume from an existing checkpoint.
  checkpoint::Resume resume = checkpoint::Resume::automatic;
  /// With `never`: the first checkpoint of this training replaces existing ones in the directory.
  /// Otherwise they are an Error (checkpoint).
  bool overwrite = false;
  /// How the ranks' replicas are compared at each save.
  checkpoint::VerifyCheckpoint verify = checkpoint::VerifyCheckpoint::automatic;
  checkpoint::Configuration configuration = {};  ///< stored in state.json
  /// The TorchScript file of the network, to store in each checkpoint; null if there is none, or if
  /// the restoring program defines the network.
  std::shared_ptr<const std::string> script = {};
};

/// How the data are read.
struct ReadOptions {
  int prefetch = 2;  ///< number of global batches to read ahead
  /// Maximum number of background threads that read; 0: one, or for replicas on GPUs the number of
  /// cores of the process, up to 16 per replica.
  int data_threads = 0;
};

/// Options of Trainer::fit().
struct FitOptions {
  /// `epochs` and `steps` count from the beginning of the training, also if it resumes from a
  /// checkpoint. The limit that is reached first applies. 0: no limit; nullopt: 1 epoch unless
  /// `steps` is set.
  std::optional<std::int64_t> epochs = {};
  std::int64_t steps = 0;                        ///< 0: no limit
  std::optional<data::Dataset> validation = {};  ///< evaluated at the end of each epoch; batched
  /// Evaluated once, after the last step, unless a signal or a diverged training ends it; batched.
  std::optional<data::Dataset> test = {};
  /// Number of steps between further validations within epochs; 0: none.
  std::int64_t validate_every = 0;
  /// Number of images of the validation data, from its first record on, that are passed to
  /// Callback::on_predictions() with the predicted classes; at most 1000, 0: none.
  std::int64_t prediction_images = 0;
  CheckpointPlan checkpoint = {};                         ///< where and when to save
  std::vector<std::shared_ptr<Callback>> callbacks = {};  ///< called in this order
  /// The chief prints the progress to standard output (ProgressBar), unless `callbacks` has a
  /// ProgressBar or the session is quiet.
  bool progress = true;
  ReadOptions read = {};  ///< how the data are read
  /// Number of steps between checks that all replicas have the same values; 0 checks only at
  /// checkpoints.
  std::int64_t check_replicas = 1000;
  /// File for the time of each layer, of the loss, the reduction and the update, as JSON lines;
  /// empty: none. Covers the chief's first replica, whose steps are then not recorded
  /// (docs/performance.md). Written at the end; must be set on all ranks or on none.
  std::filesystem::path profile = {};
  /// A trace of some steps. The chief writes it after the last traced step. A write error is logged
  /// then, and thrown as Error (output) at the end of the training. The same on all ranks.
  TraceOptions trace = {};
  /// Initial weights from another training; ignored if this run resumes from a checkpoint.
  std::optional<Pretrained> pretrained = {};
  /// Signals, such as SIGTERM, SIGINT and SIGHUP, that end the training with a checkpoint after the
  /// current step. fit() handles them while it runs (SignalWatch). Empty: the process keeps its
  /// handlers.
  std::vector<int> signals = {};
};

/// The result of Trainer::fit().
struct History {
  std::vector<EpochLogs> epochs;  ///< the epochs of this run
  TrainEnd end;                   ///< how the training ended
};

}  // namespace lockstep::inline v0::train

namespace lockstep::inline v0 {

/// The options of reading.
template <>
struct Fields<train::ReadOptions> {
  using Options = train::ReadOptions;  ///< the struct
  /// Its fields.
  static constexpr std::tuple list{
      Field{&Options::data_threads,
            {"data_threads", "Data",
             "Maximum number of threads per process that read and decode; only as many as "
             "needed are active. 0: 1, and for replicas on GPUs the cores of the process, "
             "up to 16 for each"},
            {.min = 0}},
      Field{
          &Options::prefetch, {"prefetch", "Data", "Number of batches to read ahead"}, {.min = 1}}};
};

/// The options of checkpoints. The command line adds the directory and the best checkpoint.
template <>
struct Fields<train::CheckpointPlan> {
  using Options = train::CheckpointPlan;  ///< the struct
  /// Throws Error (input). For a directory, the message names the option that expects one.
  static void parse_resume(Options& options, std::string_view name,
                           std::span<const std::string> values);
  static std::vector<std::string> print_resume(const Options& options);  ///< its name
  static std::vector<std::string> print_best(const Options& options);    ///< the metric
  /// Its fields.
  static constexpr std::tuple list{
      Field{&Options::save_every,
            {"save_every", "Checkpoints and summaries",
             "Number of steps between checkpoints; 0 saves at the end of each epoch if "
             "--checkpoint-dir is given. The last step and the best validation "
             "(--keep-best) are always saved",
             Role::agree, "steps between checkpoints"},
            {.min = 0}},
      Field{&Options::keep,
            {"keep", "Checkpoints and summaries", "Number of healthy checkpoints to keep"},
            {.min = 1}},
      TextField<Options>{
          {"best_metric", {}, {}, Role::agree, "best checkpoint"}, nullptr, print_best},
      Field{&Options::restore_best,
            {"restore_best", {}, {}, Role::agree, "best weights at the end"},
            {},
            {.needs = "best_metric"}},
      TextField<Options>{
          {"resume", "Checkpoints and summaries",
           "Resume from the newest checkpoint: auto (if there is one), never, or require "
           "(fail without one)",
           Role::agree},
          parse_resume,
          print_resume,
          {.value = "auto|never|require"}},
      Field{&Options::overwrite,
            {"overwrite", "Checkpoints and summaries",
             "With --resume never, replace the checkpoints that the directory has; without "
             "it they are an error"},
            {},
            {.needs = "resume=never"}},
      Field{&Options::verify,
            {"verify_checkpoint", "Checkpoints and summaries",
             "How ranks other than 0 verify at each save that their replicas match: full "
             "(each rank writes its own checkpoint to TMPDIR or /tmp of its node, compares "
             "it and removes it), hash (each rank compares hashes and writes nothing), "
             "none, or auto (full up to 256 MB per rank, hash above)"}}};
};

/// The options of one call of Trainer::fit(); those of reading are shared with evaluations.
template <>
struct Fields<train::FitOptions> {
  using Options = train::FitOptions;  ///< the struct
  /// Throws Error (input) as parse_trace().
  static void parse_trace(Options& options, std::string_view name,
                          std::span<const std::string> values);
  /// As parse_trace() reads it.
  static std::vector<std::string> print_trace(const Options& options);
  static std::vector<std::string> print_validation(const Options& options);  ///< its description
  /// Its fields.
  static constexpr std::tuple list{
      Field{&Options::epochs,
            {"epochs", kCommonOptions,
             "Number of passes over the data. 0: no limit (default: none with --steps; else by the "
             "number of records, and with validation data until its loss has not improved for a "
             "while)"},
            {{.min = 0}}},
      Field{&Options::steps,
            {"steps", "Training",
             "Maximum number of steps; with --epochs, training ends at whichever limit is "
             "reached first. 0: no limit"},
            {.min = 0}},
      TextField<Options>{{"validation_data"}, nullptr, print_validation},
      Field{&Options::validate_every,
            {"validate_every", "Training",
             "Number of steps between validations within epochs, in addition to that at "
             "the end of each epoch; 0 disables them",
             Role::agree, "steps between validations"},
            {.min = 0},
            {.needs = "validation_data|validation_split"}},
      Field{&Options::prediction_images,
            {"prediction_images", "Checkpoints and summaries",
             "With --summary-dir, number of validation images (at most 1000) to show with "
             "the predicted classes after each validation; 0 shows none",
             Role::agree, "prediction images"},
            {.min = 0},
            {.needs = "summary_dir"}},
      Part{&Options::checkpoint},
      Field{&Options::check_replicas,
            {"check_replicas", "Replicas",
             "Number of steps between checks that all replicas have the same parameters, "
             "optimizer slots and, with --bn sync, moving statistics; 0 checks only at "
             "checkpoints",
             Role::agree, "steps between comparisons of replicas"},
            {.min = 0}},
      Field{&Options::profile,
            {"profile", "Output",
             "File for the time of each layer, of the loss, the reduction and the update, "
             "as JSON lines: medians of rank 0 after 5 steps, beside the bytes and FLOP "
             "that each needs. Timed steps are not recorded (--graph) (default: none)"},
            {},
            {.value = "FILE"}},
      TextField<Options>{
          {"trace", "Output",
           "File for what the threads of all ranks do, on one clock, to be opened in "
           "https://ui.perfetto.dev; FILE.json for Chrome's format. Of the steps from "
           "FIRST to LAST (default: none; without steps, until the file has 1,000,000 "
           "events per rank)"},
          parse_trace,
          print_trace,
          {.value = "FILE[:steps=FIRST-LAST]"}}};
};

}  // namespace lockstep::inline v0
