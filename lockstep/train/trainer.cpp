#include "lockstep/train/trainer.h"

#include <fmt/format.h>
#include <spdlog/logger.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/json/json.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/agreement.h"
#include "lockstep/checkpoint/directory.h"
#include "lockstep/job/agreement.h"
#include "lockstep/model/network/network_json.h"
#include "lockstep/strategy/replica/local_replicas.h"
#include "lockstep/train/callbacks/progress.h"
#include "lockstep/train/evaluation/evaluation.h"
#include "lockstep/train/fit/fit_loop.h"
#include "lockstep/train/input/check_data.h"
#include "lockstep/train/input/data_names.h"
#include "lockstep/train/input/data_warnings.h"

namespace lockstep::inline v0::train {
namespace {

/// Returns `options` after checking that they are the same on all ranks. Otherwise parameters would
/// differ from the first step on, or one rank would throw while the others wait. The schedule of
/// the result has the learning rate of the optimizer, if it is set. Collective.
strategy::TrainerOptions agreed(strategy::TrainerOptions options,
                                const strategy::Strategy& strategy) {
  strategy.require_usable();
  options = strategy.adapted(std::move(options));
  options.schedule.peak = strategy::peak_rate(options);
  job::Agreement(strategy.ranks())
      .require_same_lines("ranks", lines_of(fields_of(std::as_const(options))));
  return options;
}

/// Describes the layers of `network`, one per line, for Agreement::require_same_lines(). Empty if a
/// layer cannot be described.
std::string describe_layers(const model::Network& network) {
  std::string text;
  const std::optional<nlohmann::json> description = model::network_to_json(network);
  if (!description) return text;
  std::size_t number = 0;
  for (const nlohmann::json& layer : description->at("layers"))
    text += fmt::format("layer {}: {}\n", ++number, dump_json(layer));
  return text;
}

bool shows_progress(const job::Session& session, const FitOptions& options) {
  return options.progress && session.is_chief() &&
         session.logger()->should_log(spdlog::level::info) &&
         std::ranges::none_of(options.callbacks, [](const auto& callback) {
           return dynamic_cast<const ProgressBar*>(callback.get()) != nullptr;
         });
}

}  // namespace

Trainer::Trainer(strategy::Strategy& strategy, model::Network network,
                 const strategy::TrainerOptions& options)
    : options_(agreed(options, strategy)),
      network_(std::make_shared<const model::Network>(prepared(std::move(network), options_))),
      replicas_(std::make_unique<strategy::LocalReplicas>(strategy, network_, options_)),
      names_(std::make_unique<DataNames>()) {
  // Layers with equal parameters may still differ, for example in an activation.
  job::Agreement(strategy.ranks()).require_same_lines("ranks", describe_layers(*network_));
  replicas_->initialize(options.seed);
}

Trainer::~Trainer() = default;

PretrainedWeights Trainer::initialize_from(const Pretrained& pretrained) {
  return train::initialize_from(*replicas_, pretrained);
}

std::uint64_t Trainer::parameter_hash() { return (*replicas_)[0].parameter_hash(); }

History Trainer::fit(const data::Dataset& dataset, const FitOptions& options) {
  strategy::Strategy& strategy = replicas_->strategy();
  *names_ = DataNames::of(dataset);
  FitOptions fit = options;
  if (shows_progress(strategy.session(), options))
    fit.callbacks.push_back(std::make_shared<ProgressBar>());
  auto loop = std::make_unique<FitLoop>(*replicas_, options_, dataset, fit);
  History history;
  strategy.fail_together([&] { history = loop->run(); });
  // Threads that still read ahead must finish.
  const allreduce::PhaseScope ending(&strategy.activity(0), allreduce::Phase::ending);
  const bool has_best = loop->has_best();  // not if the metric was never finite
  loop.reset();
  const CheckpointPlan& saving = options.checkpoint;
  if (saving.restore_best && has_best && history.end.signal == 0) {
    restore(saving.directory.native() + ":best");
    history.end.parameter_hash = parameter_hash();
  }
  return history;
}

Evaluation Trainer::evaluate(const data::Dataset& dataset, const ReadOptions& options) {
  replicas_->strategy().require_usable();
  const data::Dataset records = matched(dataset, *names_);
  check_data_fits(records, *network_, replicas_->loss(), DataUse::evaluation);
  job::Agreement(replicas_->strategy().ranks()).require_same_lines("ranks", describe_plan(records));
  replicas_->run([](strategy::Replica& replica, int) { replica.install_mean_statistics(); });
  std::int32_t highest_label = -1;
  const auto sums = train::evaluate(
      *replicas_, records, one_pass(replicas_->strategy(), records, options), {}, &highest_label);
  replicas_->run([](strategy::Replica& replica, int) { replica.restore_statistics(); });
  if (sums->samples == 0 && !sums->bad_files.empty())
    throw Error(
        ErrorCategory::data, records.description(), "expected a readable record",
        fmt::format("all {} are bad, such as: {}", records.size(), sums->bad_files.front().first));
  model::require_weights(*sums, "evaluation");
  const std::string warning =
      options_.losses.empty()
          ? class_warning(records, model::row_width(options_.loss, network_->output_shape()),
                          highest_label)
          : "";
  if (!warning.empty() && replicas_->strategy().is_chief())
    replicas_->strategy().session().logger()->warn(warning);
  return *sums;
}

std::vector<BadFile> Trainer::predict(const data::Dataset& dataset, const PredictionSink& sink,
                                      const ReadOptions& options) {
  replicas_->strategy().require_usable();
  check_data_fits(dataset, *network_, replicas_->loss(), DataUse::prediction);
  check_same_features(dataset, *names_);
  job::Agreement(replicas_->strategy().ranks()).require_same_lines("ranks", describe_plan(dataset));
  replicas_->run([](strategy::Replica& replica, int) { replica.install_mean_statistics(); });
  const auto bad_files =
      train::predict(*replicas_, dataset, one_pass(replicas_->strategy(), dataset, options), sink);
  replicas_->run([](strategy::Replica& replica, int) { replica.restore_statistics(); });
  return bad_files;
}

checkpoint::RestoredCheckpoint Trainer::restore(const std::filesystem::path& path) {
  const strategy::Strategy& strategy = replicas_->strategy();
  strategy.require_usable();
  const checkpoint::ReplicaArrays arrays = replicas_->arrays(false);
  checkpoint::TrainingState read;  // on the chief
  const std::string single =
      checkpoint::on_every_rank(strategy.ranks(), [&]() -> std::string {
        if (!strategy.is_chief()) return {};
        const std::filesystem::path one = checkpoint::resolve_best(path);
        std::error_code unreadable;  // reported when the directory is listed
        if (!std::filesystem::exists(one / checkpoint::kManifestName, unreadable)) return {};
        checkpoint::check_contents(one, checkpoint::read_manifest(one));
        checkpoint::check_checkpoint_fits(one, arrays);
        read = checkpoint::read_checkpoint_files(one, arrays);
        return dump_json(nlohmann::json{{"path", encode_bytes(one.native())},
                                        {"state", checkpoint::to_json_text(read)}});
      }).front();
  checkpoint::RestoredCheckpoint restored;
  if (single.empty()) {
    checkpoint::CheckpointDirectory checkpoints({.directory = path}, strategy.ranks(),
                                                strategy.session().logger());
    restored = *checkpoints.restore(arrays, checkpoint::Resume::require);
    if (strategy.is_chief())
      if (const std::string best = checkpoint::describe_best(path, restored.path); !best.empty())
        strategy.session().logger()->info(best);
  } else {
    strategy.ranks().broadcast(std::as_writable_bytes(arrays.parameters), 0);
    strategy.ranks().broadcast(std::as_writable_bytes(arrays.buffers), 0);
    const nlohmann::json message = parse_json(single, ErrorCategory::communication, "restore");
    const std::string one = decode_bytes(message["path"].get<std::string>());
    restored = {one, checkpoint::parse_training_state(message["state"].get<std::string>(), one)};
    checkpoint::broadcast_file(strategy.ranks(), read.tokenizer);
    restored.state.tokenizer = std::move(read.tokenizer);
  }
  replicas_->broadcast_parameters();
  *names_ = DataNames::of(restored.state);
  return restored;
}

}  // namespace lockstep::inline v0::train
