#include "lockstep/train/fit/checkpointer.h"

#include <fmt/format.h>
#include <spdlog/logger.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/checkpoint/agreement.h"
#include "lockstep/model/optimizer/optimizer.h"
#include "lockstep/strategy/replica/replica.h"
#include "lockstep/train/fit/fit_state.h"

namespace lockstep::inline v0::train {

Checkpointer::Checkpointer(strategy::LocalReplicas& replicas, const CheckpointPlan& plan)
    : replicas_(replicas), plan_(plan) {
  if (plan_.keep_best) monitor_.emplace(*plan_.keep_best);
}

std::optional<checkpoint::RestoredCheckpoint> Checkpointer::restore(
    const checkpoint::TrainingState& start) {
  if (plan_.directory.empty()) return std::nullopt;
  const strategy::Strategy& strategy = replicas_.strategy();
  const checkpoint::ReplicaArrays arrays = replicas_.arrays(true);
  directory_.emplace(
      checkpoint::CheckpointOptions{
          .directory = plan_.directory, .keep = plan_.keep, .verify = plan_.verify},
      strategy.ranks(), strategy.session().logger());
  directory_->prepare(checkpoint::checkpoint_bytes(arrays, start));
  if (plan_.resume == checkpoint::Resume::never) directory_->start_over(plan_.overwrite);
  (void)checkpoint::parse_training_state(checkpoint::to_json_text(start), "checkpoint");
  const auto explain = [&](const checkpoint::RestoredCheckpoint& other) {
    throw_incompatible(other, start);
  };
  auto restored = directory_->restore(arrays, plan_.resume, explain);
  if (!restored) return std::nullopt;
  restored_from_ = unconfirmed_ = restored->path;
  saved_step_ = restored->state.step;
  return restored;
}

void Checkpointer::restore_best(const std::optional<checkpoint::BestMark>& best) {
  if (!best || !monitor_ || !directory_) return;
  const strategy::Strategy& strategy = replicas_.strategy();
  if (const std::string& metric = monitor_->metric().name; best->metric != metric) {
    if (strategy.is_chief())
      strategy.session().logger()->warn(fmt::format(
          "the earlier run kept the checkpoint with the best {}, {}; from now on the one with the "
          "best {} is kept (--keep-best)",
          best->metric, best->value, metric));
    return;
  }
  const std::string found = checkpoint::on_every_rank(strategy.ranks(), [&]() -> std::string {
                              if (!strategy.is_chief()) return {};
                              const auto checkpoints =
                                  checkpoint::list_checkpoints(plan_.directory);
                              return checkpoint::find_best(checkpoints) == nullptr ? "" : "marked";
                            }).front();
  if (found.empty()) {
    if (strategy.is_chief())
      strategy.session().logger()->warn(fmt::format(
          "{} has no checkpoint with the best {}, {}, of the earlier run: the best from now on "
          "counts",
          plan_.directory.string(), best->metric, best->value));
    return;
  }
  saved_best_ = best->value;
  monitor_->set_best(saved_best_, 0);
}

std::optional<checkpoint::BestMark> Checkpointer::best() const {
  if (!monitor_ || !monitor_->best()) return std::nullopt;
  return checkpoint::BestMark{monitor_->metric().name, *monitor_->best()};
}

void Checkpointer::note(const EpochLogs& logs, bool last_was_skipped) {
  if (!directory_ || !monitor_ || last_was_skipped || logs.step == 0) return;
  if (monitor_->observe(logs).value_or(false)) is_best_ = true;
}

bool Checkpointer::must_save(const Position& position, bool is_end, bool last_was_skipped) {
  if (is_best_) return true;  // even if this step is already saved without the mark
  if (!directory_ || position.step == 0 || position.step == saved_step_) return false;
  if (is_end) return true;
  if (plan_.save_every > 0 ? position.step % plan_.save_every == 0 : position.is_at_epoch_begin())
    is_due_ = true;
  return is_due_ && !last_was_skipped;
}

std::optional<std::filesystem::path> Checkpointer::save(const checkpoint::TrainingState& state,
                                                        const StepHealth& health, bool is_end) {
  const strategy::Strategy& strategy = replicas_.strategy();
  Logger& log = *strategy.session().logger();
  replicas_.run([](strategy::Replica& replica, int) { replica.adopt_mean_statistics(); });
  replicas_.check_agreement(state.step);
  const checkpoint::ReplicaArrays arrays = replicas_.arrays(true);
  check_finite(arrays, state.step);
  is_due_ = false;
  const auto mark = std::exchange(is_best_, false) ? best() : std::nullopt;
  std::filesystem::path path;
  try {
    // The last checkpoint is not followed by a step that could confirm it.
    path = directory_->save(arrays, state,
                            {.healthy = health.is_healthy(), .prune = is_end, .best = mark});
  } catch (const checkpoint::SaveError& error) {
    if (is_end) throw;
    if (mark) monitor_->set_best(saved_best_, 0);  // no checkpoint has the new value
    if (strategy.is_chief())
      log.warn(fmt::format(
          "step {} was not saved; the training continues, and saves again when the next checkpoint "
          "is due: {}",
          state.step, error.what()));
    return std::nullopt;
  }
  saved_step_ = state.step;
  if (mark) saved_best_ = mark->value;
  if (health.is_healthy())
    unconfirmed_ = path;
  else if (strategy.is_chief())
    log.warn(fmt::format(
        "{} is marked as not healthy, because the last {} steps were skipped: --resume uses an "
        "older checkpoint",
        path.string(), health.skips_in_a_row()));
  return path;
}

void Checkpointer::check_finite(const checkpoint::ReplicaArrays& arrays, std::int64_t step) {
  std::vector<checkpoint::TensorView> tensors = checkpoint::model_tensors(arrays);
  std::ranges::move(checkpoint::optimizer_tensors(arrays), std::back_inserter(tensors));
  const auto found = std::ranges::find_if(tensors, [](const checkpoint::TensorView& tensor) {
    return !model::all_finite(std::get<std::span<const float>>(tensor.values));
  });
  // All ranks have the same values, but the decision must be the same on all.
  if (!replicas_.strategy().ranks().any(found != tensors.end())) return;
  throw_diverged(fmt::format("a value of {} that is not finite, after step {}",
                             found == tensors.end() ? "another rank" : found->name, step));
}

double Checkpointer::confirm() {
  if (!unconfirmed_) return 0;
  const bool is_of_this_run = unconfirmed_ != restored_from_;
  confirmed_ = std::exchange(unconfirmed_, std::nullopt);
  if (!is_of_this_run) return 0;
  const auto start = std::chrono::steady_clock::now();
  const allreduce::PhaseScope saving(&replicas_.strategy().activity(0), allreduce::Phase::saving);
  directory_->prune();
  return seconds_since(start);
}

void Checkpointer::throw_diverged(const std::string& reason) {
  std::string left;
  if (unconfirmed_ && unconfirmed_ == restored_from_) {
    left = fmt::format(
        "; all steps after {} were skipped: if other settings do not help, move it away to resume "
        "from an older checkpoint",
        unconfirmed_->string());
  } else if (directory_) {
    // Only skipped steps followed the unconfirmed checkpoint.
    if (unconfirmed_) directory_->mark_unhealthy(*unconfirmed_);
    left = confirmed_ ? fmt::format("; the newest healthy checkpoint is {}", confirmed_->string())
                      : "; there is no healthy checkpoint of this run";
  }
  throw Error(ErrorCategory::diverged, "train",
              "expected finite losses, gradients and parameters; try a lower learning rate, "
              "warm-up or clipping",
              fmt::format("got {}{}", reason, left));
}

}  // namespace lockstep::inline v0::train
