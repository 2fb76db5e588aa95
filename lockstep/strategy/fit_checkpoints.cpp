// FitLoop: saving and restoring checkpoints, and initial weights.
#include <fmt/format.h>
#include <spdlog/logger.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/model/optimizer.h"
#include "lockstep/strategy/fit_loop.h"
#include "lockstep/strategy/remembered_route.h"

namespace lockstep::strategy {
namespace {

/// The end of every error that refuses to resume. It does not suggest --resume never, because a new training in the
/// same directory would remove the old checkpoints one by one.
constexpr const char* kStartOver = "use another --checkpoint-dir to start over";

constexpr const char* kBucketKey = "bucket_bytes";
constexpr const char* kGoodStepsKey = "loss_scale_good_steps";  // only for a dynamic loss scale

/// Throws unless a number of the checkpoint is the same in the run that resumes from it.
void check_same(const std::filesystem::path& path, std::string_view what, std::int64_t saved, std::int64_t given) {
  if (saved == given) return;
  throw Error(
      ErrorCategory::checkpoint, "resume",
      fmt::format("expected the {} of {}, {}, on which the position in the data depends", what, path.string(), saved),
      fmt::format("got {}; {}", given, kStartOver));
}

}  // namespace

void FitLoop::restore() {
  if (fit_.checkpoint.directory.empty()) return;
  const checkpoint::ReplicaArrays arrays = replicas_.arrays(true);
  checkpoints_.emplace(
      checkpoint::CheckpointOptions{
          .directory = fit_.checkpoint.directory, .keep = fit_.checkpoint.keep, .verify = fit_.checkpoint.verify},
      strategy_.ranks(), strategy_.session().logger());
  checkpoints_->prepare(checkpoint::checkpoint_bytes(arrays));
  // Detect a state that cannot be serialized now, and not at the first save.
  (void)checkpoint::parse_training_state(checkpoint::to_json_text(state()), "checkpoint");
  const auto restored = checkpoints_->restore(arrays, fit_.checkpoint.resume);
  if (!restored) return;
  check_position(*restored);
  replicas_.spread();
  const auto number = [&](const char* name) {
    const auto found = restored->state.metrics.find(name);
    return found == restored->state.metrics.end() ? 0.0 : found->second;
  };
  const auto count = [&](const char* name) {
    constexpr double kLargest = 9007199254740992;  // 2^53: up to here every count is exact as a double
    const double value = number(name);
    if (!(value >= 0 && value <= kLargest) || value != std::floor(value))
      throw Error(ErrorCategory::checkpoint, restored->path.string(), fmt::format("expected a count as {}", name),
                  fmt::format("got {}", value));
    return static_cast<std::int64_t>(value);
  };
  restored_from_ = unconfirmed_ = restored->path;
  step_ = first_step_ = saved_step_ = restored->state.step;
  epochs_done_ = restored->state.epoch;
  updates_ = count("updates");
  skipped_samples_ = count("epoch_skipped_samples");
  if (restored->state.metrics.contains(kGoodStepsKey))
    replicas_.run([&](Replica& replica, int) {
      replica.loss_scaler().restore(static_cast<float>(restored->state.loss_scale), count(kGoodStepsKey));
    });
  if (trainer_.tune_buckets) tuned_bytes_ = restored->state.configuration->value(kBucketKey, std::size_t{0});
  epoch_sums_ = {.loss = number("epoch_loss_sum"),
                 .samples = count("epoch_samples"),
                 .correct = count("epoch_correct"),
                 .correct_top5 = count("epoch_correct_top5"),
                 .has_accuracy = replicas_.has_accuracy()};
}

void FitLoop::initialize() {
  if (!fit_.pretrained) return;
  if (!restored_from_)
    initialized_from_ = initialize_from(replicas_, *fit_.pretrained);
  else if (strategy_.is_chief())
    strategy_.session().logger()->info("pretrained weights are ignored: the training resumes from {}",
                                       restored_from_->string());
}

void FitLoop::check_position(const checkpoint::RestoredCheckpoint& restored) const {
  const checkpoint::TrainingState& state = restored.state;
  check_same(restored.path, "global batch", state.global_batch, dataset_.global_batch());
  check_same(restored.path, "seed", static_cast<std::int64_t>(state.seed), static_cast<std::int64_t>(trainer_.seed));
  const auto slots = replicas_[0].optimizer().slot_names();
  if (const auto saved = state.configuration->value("slots", slots); saved != slots)
    throw Error(
        ErrorCategory::checkpoint, "resume",
        fmt::format("expected the optimizer of {}, with slots [{}]", restored.path.string(), fmt::join(saved, ", ")),
        fmt::format("got one with [{}]; {}", fmt::join(slots, ", "), kStartOver));
  const bool depends_on_end =
      schedule_.kind == model::Schedule::Kind::cosine || schedule_.kind == model::Schedule::Kind::linear;
  const std::int64_t end = state.configuration->value("schedule_steps", schedule_.total_steps);
  if (depends_on_end && end != schedule_.total_steps && strategy_.is_chief())
    strategy_.session().logger()->warn(
        "the learning-rate schedule ended at step {} in the earlier run, and now ends at {}: the learning rate changes",
        end, schedule_.total_steps);
  if (const std::string precision = to_string(trainer_.precision); state.precision != precision && strategy_.is_chief())
    strategy_.session().logger()->warn("{} was computed in {}; the training continues in {}", restored.path.string(),
                                       state.precision, precision);
  if (const auto saved = state.configuration->value("preparation", dataset_.preparation());
      saved != dataset_.preparation())
    throw Error(ErrorCategory::checkpoint, "resume",
                fmt::format("expected the sample preparation of {} (\"{}\")", restored.path.string(), saved),
                fmt::format("got \"{}\"; {}", dataset_.preparation(), kStartOver));
  const std::string policy(to_string(dataset_.shard_policy()));
  if (const auto saved = state.configuration->value("shard_policy", policy); saved != policy)
    throw Error(ErrorCategory::checkpoint, "resume",
                fmt::format("expected the shard policy of {}, {}", restored.path.string(), saved),
                fmt::format("got {}; {}", policy, kStartOver));
  if (policy == "file" || policy == "off")
    for (const auto& [what, key, given] : {std::tuple{"number of ranks", "workers", layout_.workers()},
                                           {"number of replicas", "replicas", layout_.replicas}})
      check_same(restored.path, what, state.configuration->value(key, given), given);
  const std::string order = dataset_.order(layout_);
  if (const auto saved = state.configuration->value("order", order); saved != order)
    throw Error(ErrorCategory::checkpoint, "resume",
                fmt::format("expected the order of records of {}, {}", restored.path.string(), saved),
                fmt::format("got {}; {}", order, kStartOver));
  check_same(restored.path, "number of records", state.configuration->value("records", dataset_.size()),
             dataset_.size());
}

// Nothing is saved after a skipped step: a diverged training would replace all healthy checkpoints. A save that is due
// waits for the next good step, except at the end.
bool FitLoop::must_save() {
  if (!checkpoints_ || step_ == 0 || step_ == saved_step_) return false;
  if (leaving() || step_ == last_step_) return true;
  const std::int64_t every = fit_.checkpoint.save_every;
  if (every > 0 ? step_ % every == 0 : step_ == epochs_done_ * steps_per_epoch_) save_is_due_ = true;
  return save_is_due_ && !last_was_skipped_;
}

void FitLoop::save() {
  const auto start = std::chrono::steady_clock::now();
  const allreduce::PhaseScope saving(&strategy_.activity(0), allreduce::Phase::saving);
  collect_metrics();
  replicas_.run([](Replica& replica, int) { replica.adopt_mean_statistics(); });
  replicas_.check_agreement(step_);
  const checkpoint::ReplicaArrays arrays = replicas_.arrays(true);
  check_finite(arrays);
  const bool healthy = skips_in_a_row_ == 0;
  // The last checkpoint is not followed by a step that could confirm it.
  const bool is_last = leaving() || step_ == last_step_;
  save_is_due_ = false;
  std::optional<std::filesystem::path> path;
  try {
    path = checkpoints_->save(arrays, state(), {.healthy = healthy, .prune = is_last});
  } catch (const checkpoint::SaveError& error) {
    if (is_last) throw;
    if (strategy_.is_chief())
      strategy_.session().logger()->warn(
          "step {} was not saved; the training continues, and saves again when the next checkpoint is due: {}", step_,
          error.what());
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  paused_ += seconds;
  if (!path) return;
  saved_step_ = step_;
  if (healthy)
    unconfirmed_ = path;
  else if (strategy_.is_chief())
    strategy_.session().logger()->warn(
        "{} is marked as not healthy, because the last {} steps were skipped: --resume uses an older checkpoint",
        path->string(), skips_in_a_row_);
  tell([&](Callback& callback) { callback.on_checkpoint({.step = step_, .path = *path, .seconds = seconds.count()}); });
}

void FitLoop::check_finite(const checkpoint::ReplicaArrays& arrays) {
  std::vector<checkpoint::TensorView> tensors = checkpoint::model_tensors(arrays);
  std::ranges::move(checkpoint::optimizer_tensors(arrays), std::back_inserter(tensors));
  const auto found = std::ranges::find_if(tensors, [](const checkpoint::TensorView& tensor) {
    return !model::all_finite(std::get<std::span<const float>>(tensor.values));
  });
  // All ranks have the same values, but the decision must be the same on all.
  if (!strategy_.ranks().any(found != tensors.end())) return;
  throw_diverged(fmt::format("a value of {} that is not finite, after step {}",
                             found == tensors.end() ? "another rank" : found->name, step_));
}

void FitLoop::confirm_checkpoint() {
  if (!unconfirmed_) return;
  const bool is_of_this_run = unconfirmed_ != restored_from_;
  confirmed_ = std::exchange(unconfirmed_, std::nullopt);
  if (!is_of_this_run) return;
  const auto start = std::chrono::steady_clock::now();
  const allreduce::PhaseScope saving(&strategy_.activity(0), allreduce::Phase::saving);
  checkpoints_->prune();
  paused_ += std::chrono::steady_clock::now() - start;
}

bool FitLoop::ended_diverged() const {
  if (signal_ != 0 || skips_in_a_row_ == 0) return false;
  return good_steps_here_ == 0 || (!history_.epochs.empty() && history_.epochs.back().metrics.samples == 0);
}

void FitLoop::throw_diverged(const std::string& given) {
  std::string left;
  if (unconfirmed_ && unconfirmed_ == restored_from_) {
    left = fmt::format(
        "; all steps after {} were skipped: if other settings do not help, move it away to resume from an older "
        "checkpoint",
        unconfirmed_->string());
  } else if (checkpoints_) {
    // Only skipped steps followed the unconfirmed checkpoint.
    if (unconfirmed_) checkpoints_->mark_unhealthy(*unconfirmed_);
    left = confirmed_ ? fmt::format("; the newest healthy checkpoint is {}", confirmed_->string())
                      : "; there is no healthy checkpoint of this run";
  }
  throw Error(ErrorCategory::diverged, "train",
              "expected finite losses, gradients and parameters; try a lower learning rate, warm-up or clipping",
              fmt::format("got {}{}", given, left));
}

checkpoint::TrainingState FitLoop::state() const {
  checkpoint::TrainingState state;
  state.step = step_;
  state.epoch = epochs_done_;
  state.seed = trainer_.seed;
  state.global_batch = dataset_.global_batch();
  state.precision = to_string(trainer_.precision);
  state.metrics = {{"updates", static_cast<double>(updates_)},
                   {"epoch_loss_sum", epoch_sums_.loss},
                   {"epoch_samples", static_cast<double>(epoch_sums_.samples)},
                   {"epoch_correct", static_cast<double>(epoch_sums_.correct)},
                   {"epoch_correct_top5", static_cast<double>(epoch_sums_.correct_top5)},
                   {"epoch_skipped_samples", static_cast<double>(skipped_samples_)}};
  const LossScaler& scaler = replicas_[0].loss_scaler();
  state.loss_scale = static_cast<double>(scaler.scale());
  if (scaler.is_dynamic()) state.metrics[kGoodStepsKey] = static_cast<double>(scaler.good_steps());
  state.configuration = fit_.checkpoint.configuration;
  (*state.configuration)["records"] = dataset_.size();
  (*state.configuration)["shard_policy"] = to_string(dataset_.shard_policy());
  (*state.configuration)["workers"] = layout_.workers();
  (*state.configuration)["replicas"] = layout_.replicas;
  (*state.configuration)["order"] = dataset_.order(layout_);
  (*state.configuration)["preparation"] = dataset_.preparation();
  remember_route(*state.configuration, strategy_.selection().route);
  if (tuned_bytes_ > 0) (*state.configuration)[kBucketKey] = tuned_bytes_;
  (*state.configuration)["schedule_steps"] = schedule_.total_steps;
  (*state.configuration)["slots"] = replicas_[0].optimizer().slot_names();
  return state;
}

}  // namespace lockstep::strategy
