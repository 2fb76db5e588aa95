#include "lockstep/strategy/fit_loop.h"

#include <fmt/format.h>
#include <spdlog/logger.h>

#include <algorithm>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/job/agreement.h"
#include "lockstep/strategy/data_fit.h"

namespace lockstep::strategy {
namespace {

using Clock = std::chrono::steady_clock;

/// After this many consecutive skipped steps, a training is considered diverged.
constexpr std::int64_t kMaxSkipsInARow = 100;

std::int64_t planned_steps(const FitOptions& fit, std::int64_t steps_per_epoch) {
  if (fit.epochs <= 0 && fit.steps <= 0)
    throw Error(ErrorCategory::input, "fit", "expected a number of epochs or of steps", "both are 0");
  const std::int64_t by_epochs =
      fit.epochs > 0 ? fit.epochs * steps_per_epoch : std::numeric_limits<std::int64_t>::max();
  const std::int64_t by_steps = fit.steps > 0 ? fit.steps : std::numeric_limits<std::int64_t>::max();
  return std::min(by_epochs, by_steps);
}

/// Shard policies that distribute records over ranks require the same number of replicas on every rank. All ranks see
/// the same placements and throw the same error.
data::ReplicaLayout layout_of(const Strategy& strategy, data::ShardPolicy policy) {
  std::vector<int> of_rank(static_cast<std::size_t>(strategy.session().size()));
  for (const job::Placement& place : strategy.placements()) ++of_rank[static_cast<std::size_t>(place.rank)];
  const auto [least, most] = std::ranges::minmax(of_rank);
  if (policy != data::ShardPolicy::automatic && least != most)
    throw Error(ErrorCategory::input, fmt::format("shard-policy {}", to_string(policy)),
                "expected the same number of replicas on every rank",
                fmt::format("some have {} and some {}", least, most));
  return {strategy.num_replicas_in_sync(), least == most ? least : strategy.num_replicas_in_sync()};
}

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

FitLoop::FitLoop(LocalReplicas& replicas, const TrainerOptions& trainer, const data::Dataset& dataset,
                 const FitOptions& fit)
    : replicas_(replicas),
      strategy_(replicas.strategy()),
      trainer_(trainer),
      dataset_(dataset),
      fit_(fit),
      signals_(fit.signals),
      layout_(layout_of(strategy_, dataset.shard_policy())),
      steps_per_epoch_(dataset.steps_per_epoch(layout_)),
      results_(static_cast<std::size_t>(strategy_.local_replicas())),
      step_body_([this](int local) {
        const auto i = static_cast<std::size_t>(local);
        results_[i] = replicas_[local].train_step(parts_[i], request_, has_next_ ? &next_parts_[i] : nullptr);
      }) {}

FitLoop::~FitLoop() = default;

History FitLoop::run() {
  begin();
  for (;;) {
    // First, so that a training that was stopped during validation reports the epoch when it is resumed.
    if (at_epoch_end()) end_epoch(true);
    if (must_save()) save();
    if (leaving() || step_ >= last_step_) break;
    train_step();
  }
  if (signal_ == 0 && step_ > epochs_done_ * steps_per_epoch_ && step_ > first_step_) end_epoch(false);
  history_.end = end();
  if (ended_diverged()) throw_diverged(fmt::format("{} skipped steps at the end", skips_in_a_row_));
  return std::move(history_);
}

void FitLoop::begin() {
  const allreduce::PhaseScope starting(&strategy_.activity(0), allreduce::Phase::starting);
  check_data_fits(dataset_, replicas_.network(), trainer_.loss);
  if (fit_.validation) {
    check_data_fits(*fit_.validation, replicas_.network(), trainer_.loss, DataUse::evaluation);
    check_same_classes(dataset_, *fit_.validation);
  }
  last_step_ = planned_steps(fit_, steps_per_epoch_);
  job::Agreement(strategy_.ranks()).require_same("ranks", "data and options", plan());
  schedule_ = effective_schedule(trainer_, dataset_.global_batch(), last_step_);
  restore();
  initialize();
  replicas_.check_agreement(step_);
  if (trainer_.buckets.wire != allreduce::WireType::float32)
    replicas_.run([](Replica& replica, int) { replica.measure_wire_error(); });
  if (tuned_bytes_ > 0)
    set_bucket_bytes(tuned_bytes_);
  else if (trainer_.tune_buckets && strategy_.group(0).overlaps())
    tuner_.emplace(replicas_.network().parameters().element_count() * sizeof(float));
  if (step_ < last_step_) prepare();
  // Ranks may have different callbacks: the chief alone writes logs.
  callbacks_may_stop_ = strategy_.ranks().any(
      std::ranges::any_of(fit_.callbacks, [](const auto& callback) { return callback->may_stop_at_batches(); }));
  if (step_ < last_step_)
    stream_ = dataset_.stream({.seed = trainer_.seed,
                               .first_step = step_,
                               .last_step = last_step_,
                               .replicas = strategy_.num_replicas_in_sync(),
                               .first_replica = strategy_.first_replica(),
                               .local_replicas = strategy_.local_replicas(),
                               .prefetch = fit_.prefetch,
                               .threads = fit_.data_threads,
                               .pixels = strategy_.has_gpu()});
  announce();
}

// Allocates memory for all batch sizes before the first step: full batches, and the smaller last one of an epoch.
void FitLoop::prepare() {
  const bool ends_an_epoch = last_step_ >= (epochs_done_ + 1) * steps_per_epoch_;
  replicas_.run([&](Replica& replica, int) {
    const auto prepare = [&](const data::Dataset& dataset, bool training, bool to_the_end) {
      const std::int64_t batch = std::min(dataset.global_batch(), dataset.size());
      replica.prepare(batch, training);
      if (to_the_end && dataset.size() % batch > 0) replica.prepare(dataset.size() % batch, training);
    };
    prepare(dataset_, true, ends_an_epoch);
    if (fit_.validation) prepare(*fit_.validation, false, true);
  });
}

std::string FitLoop::plan() const {
  const CheckpointPlan& saving = fit_.checkpoint;
  std::string plan =
      fmt::format("{}, {} steps, seed {}, {} micro-batches, {}, {} normalization", describe_plan(dataset_), last_step_,
                  trainer_.seed, trainer_.accumulate, to_string(trainer_.precision), to_string(trainer_.normalization));
  if (!trainer_.records_steps) plan += ", steps not recorded";
  plan += fmt::format(", {}, shard policy {}", dataset_.order(layout_), to_string(dataset_.shard_policy()));
  if (const auto allowed = dataset_.bad_records_allowed()) plan += fmt::format(", up to {} bad records", *allowed);
  if (fit_.validation) plan += fmt::format(", validation on {}", describe_plan(*fit_.validation));
  if (fit_.pretrained)
    plan += fmt::format(", weights of {}{}", fit_.pretrained->path.string(),
                        fit_.pretrained->reset_head ? " without the head" : "");
  if (!saving.directory.empty())
    plan += fmt::format(", a checkpoint every {} steps (0: every epoch)", saving.save_every);
  return plan;
}

void FitLoop::announce() const {
  const std::int64_t world = strategy_.num_replicas_in_sync();
  const std::int64_t part = (dataset_.global_batch() + world - 1) / world;
  const TrainBegin begin{.model = replicas_.network().name(),
                         .parameters = static_cast<std::int64_t>(replicas_.network().parameters().element_count()),
                         .precision = to_string(trainer_.precision),
                         .normalization = to_string(trainer_.normalization),
                         .strategy = strategy_.name(),
                         .allreduce = strategy_.route(),
                         .allreduce_reason = strategy_.selection().reason,
                         .world_size = static_cast<int>(world),
                         .ranks = strategy_.session().size(),
                         .nodes = strategy_.session().nodes(),
                         .placements = strategy_.placements(),
                         .data = dataset_.description(),
                         .records = dataset_.size(),
                         .shard_policy = std::string(to_string(dataset_.shard_policy())),
                         .files = dataset_.source().files(),
                         .shares = strategy_.is_chief() ? dataset_.shares(layout_, trainer_.seed, epochs_done_)
                                                        : std::vector<data::WorkerShare>(),
                         .damaged_files = dataset_.source().damage(),
                         .global_batch = dataset_.global_batch(),
                         .per_replica_batch = part,
                         .micro_batch = (part + trainer_.accumulate - 1) / trainer_.accumulate,
                         .steps_per_epoch = steps_per_epoch_,
                         .first_step = step_,
                         .last_step = last_step_,
                         .learning_rate = schedule_.peak,
                         .seed = trainer_.seed,
                         .start_seconds = strategy_.session().seconds(),
                         .restored_from = restored_from_,
                         .initialized_from = initialized_from_ ? std::optional(initialized_from_->file) : std::nullopt,
                         .kept_head = initialized_from_ ? initialized_from_->kept_head : ""};
  tell([&](Callback& callback) { callback.on_train_begin(begin); });
}

void FitLoop::train_step() {
  if (!epoch_begun_) begin_epoch();
  // Before the callbacks, which may hang too. Counted from 1, as in all messages.
  for (int local = 0; local < strategy_.local_replicas(); ++local) strategy_.activity(local).set_step(step_ + 1);
  tell([this](Callback& callback) { callback.on_batch_begin(step_); });
  const double waited_before = stream_->seconds_waited();
  const bool staged = has_next_;
  {
    const allreduce::PhaseScope input(&strategy_.activity(0), allreduce::Phase::input);
    if (staged)
      std::swap(parts_, next_parts_);
    else
      LOCKSTEP_CHECK(stream_->next(parts_));
    // Copied to a GPU during this step. If it has not been read yet, the next step copies it itself.
    has_next_ = strategy_.has_gpu() && stream_->next_if_ready(next_parts_);
  }
  LOCKSTEP_CHECK_OP(parts_.front().step, ==, step_);
  account_.add(parts_);
  request_ = {.seed = trainer_.seed,
              .step = step_,
              .update = updates_ + 1,
              .learning_rate = schedule_.rate(step_),
              .signal = signals_.received(),
              .input_seconds = stream_->seconds_waited() - waited_before,
              .staged = staged};
  const Clock::time_point begin = Clock::now();
  strategy_.run(step_body_);
  if (tuner_) tune_buckets(seconds_since(begin));
  ++step_;
  note_step(results_.front());
  if (fit_.check_replicas > 0 && step_ % fit_.check_replicas == 0) replicas_.check_agreement(step_);
}

void FitLoop::note_step(const StepResult& result) {
  const std::int64_t samples = parts_.front().global_samples;
  samples_here_ += samples;
  signal_ = result.report.signal();
  if (step_ == first_step_ + 1) {
    note_wire_error();
    note_memory();
  }
  last_was_skipped_ = !result.applied;
  if (result.applied) {
    ++updates_;
    ++good_steps_here_;
    skips_in_a_row_ = 0;
    confirm_checkpoint();
  } else {
    skipped_samples_ += samples;
    note_skip(result);
  }
  StepLogs logs{.step = step_,
                .epoch = epochs_done_,
                .metrics = result.applied ? result.report.metrics : model::MetricSums{},
                .samples = samples,
                .learning_rate = request_.learning_rate,
                .gradient_norm = result.gradient_norm,
                .input_wait_seconds = stream_->seconds_waited(),
                .communication = replicas_[0].communication(),
                .busy = replicas_[0].busy(),
                .skipped = !result.applied,
                .overflow = result.overflow,
                .loss_scale = replicas_[0].loss_scaler().is_on() ? std::optional(result.loss_scale) : std::nullopt};
  logs.metrics.has_accuracy = replicas_.has_accuracy();
  tell([&](Callback& callback) { callback.on_batch_end(logs); });
  if (callbacks_may_stop_) agree_on_stop();
}

void FitLoop::set_bucket_bytes(std::size_t bytes) {
  replicas_.run([bytes](Replica& replica, int) { replica.set_bucket_bytes(bytes); });
}

void FitLoop::tune_buckets(double step_seconds) {
  if (const auto next = tuner_->add_step(step_seconds)) return set_bucket_bytes(*next);
  if (!tuner_->has_tried_all()) return;
  strategy_.ranks().all_reduce(std::span(tuner_->seconds_of_sizes()), allreduce::ReduceOp::max).wait();
  tuned_bytes_ = tuner_->choose();
  set_bucket_bytes(tuned_bytes_);
  if (strategy_.is_chief()) strategy_.session().logger()->info("buckets of {}", tuner_->describe());
  tuner_.reset();
}

void FitLoop::note_wire_error() const {
  const allreduce::WireError& error = replicas_[0].buckets().wire_error();
  if (trainer_.buckets.wire == allreduce::WireType::float32 || !strategy_.is_chief()) return;
  strategy_.session().logger()->info(
      "gradients are exchanged as {}: the sum of the first step differs from that in float32 by {:.2e} of its norm, "
      "and by at most {:.2e} in one element",
      to_string(trainer_.buckets.wire), error.relative, error.largest);
}

void FitLoop::note_overflow(const StepResult& result) const {
  if (strategy_.is_chief())
    strategy_.session().logger()->info("step {} skipped: the gradient overflowed; loss scale {} becomes {}", step_,
                                       result.loss_scale, replicas_[0].loss_scaler().scale());
}

// Only for GPUs, whose memory limits the batch size.
void FitLoop::note_memory() const {
  const device::Device device = strategy_.device(0);
  if (device.kind != device::DeviceKind::gpu || !strategy_.is_chief()) return;
  constexpr double kMebibyte = 1 << 20;
  const model::CompiledModel::Memory memory = replicas_[0].model().memory();
  const std::size_t slots =
      replicas_[0].optimizer().slot_names().size() * replicas_.network().parameters().flat_size() * sizeof(float);
  const auto mebibytes = [&](std::size_t bytes) { return static_cast<double>(bytes) / kMebibyte; };
  strategy_.session().logger()->info(
      "{} holds {:.1f} MiB: parameters {:.1f}, gradients {:.1f}, optimizer {:.1f}, activations {:.1f}",
      to_string(device), mebibytes(memory.total() + slots), mebibytes(memory.parameters), mebibytes(memory.gradients),
      mebibytes(slots), mebibytes(memory.activations));
}

void FitLoop::note_skip(const StepResult& result) {
  if (result.overflow) return note_overflow(result);
  std::string where;
  for (const int replica : result.failed) {
    const job::Placement& place = strategy_.placements()[static_cast<std::size_t>(replica)];
    where += fmt::format("{}{}", where.empty() ? "" : ", ", place.rank);
    if (strategy_.num_replicas_in_sync() > strategy_.session().size()) where += fmt::format(" (replica {})", replica);
  }
  std::string reason = result.report.is_finite ? "non-finite gradient" : "non-finite loss";
  if (!where.empty()) reason += fmt::format(" on rank {}", where);
  if (strategy_.is_chief()) strategy_.session().logger()->warn("step {} skipped: {}", step_, reason);
  if (++skips_in_a_row_ == kMaxSkipsInARow)
    throw_diverged(
        fmt::format("{} skipped steps in a row, the last one ({}) for a {}", kMaxSkipsInARow, step_, reason));
}

void FitLoop::agree_on_stop() {
  const bool mine =
      std::ranges::any_of(fit_.callbacks, [](const auto& callback) { return callback->stop_requested(); });
  stopped_ = strategy_.ranks().any(mine);
}

int FitLoop::agree_on_signal() const {
  std::int32_t signal = signals_.received();
  strategy_.ranks().all_reduce(std::span(&signal, 1), allreduce::ReduceOp::max).wait();
  return signal;
}

TrainEnd FitLoop::end() {
  const TrainEnd end{.steps = step_,
                     .seconds = seconds_since(start_),
                     .parameter_hash = replicas_[0].parameter_hash(),
                     .signal = signal_,
                     .stopped = stopped_};
  tell([&](Callback& callback) { callback.on_train_end(end); });
  return end;
}

}  // namespace lockstep::strategy
