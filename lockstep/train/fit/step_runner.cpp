#include "lockstep/train/fit/step_runner.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/train/evaluation/evaluation.h"

namespace lockstep::inline v0::train {

StepRunner::StepRunner(strategy::LocalReplicas& replicas, const FitPlan& plan)
    : replicas_(replicas),
      plan_(plan),
      results_(static_cast<std::size_t>(replicas.strategy().local_replicas())),
      body_([this](int local) {
        const auto i = static_cast<std::size_t>(local);
        results_[i] =
            replicas_[local].train_step(parts_[i], request_, has_next_ ? &next_parts_[i] : nullptr);
      }) {}

void StepRunner::begin(const Position& position) {
  const strategy::Strategy& strategy = replicas_.strategy();
  // Only statistics depend on which samples share a micro-batch.
  const bool shares_statistics =
      plan_.trainer.normalization.kind == strategy::NormalizationScope::Kind::sync &&
      replicas_.network().buffers().element_count() > 0;
  stream_ =
      plan_.dataset.stream({.seed = plan_.trainer.seed,
                            .first_step = position.step,
                            .last_step = position.last_step,
                            .replicas = strategy.num_replicas_in_sync(),
                            .first_replica = strategy.first_replica(),
                            .local_replicas = strategy.local_replicas(),
                            .prefetch = plan_.fit.read.prefetch,
                            .threads = reading_threads(plan_.fit.read.data_threads, strategy),
                            .pixels = strategy.has_gpu(),
                            .names_remedy = true,
                            .micro_batches = shares_statistics ? plan_.trainer.accumulate : 1});
}

const strategy::StepResult& StepRunner::run(const Position& position, float learning_rate,
                                            int signal) {
  strategy::Strategy& strategy = replicas_.strategy();
  const double waited_before = stream_->seconds_waited();
  const bool staged = has_next_;
  const auto start = std::chrono::steady_clock::now();
  {
    const allreduce::PhaseScope input(&strategy.activity(0), allreduce::Phase::input);
    if (staged)
      std::swap(parts_, next_parts_);
    else
      LOCKSTEP_CHECK(stream_->next(parts_));
    // Copied to a GPU during this step. If it has not been read yet, the next step copies it
    // itself.
    has_next_ = strategy.has_gpu() && stream_->next_if_ready(next_parts_);
  }
  LOCKSTEP_CHECK_OP(parts_.front().step, ==, position.step);
  request_ = {.seed = plan_.trainer.seed,
              .step = position.step,
              .update = position.updates + 1,
              .learning_rate = learning_rate,
              .signal = signal,
              .input_seconds = stream_->seconds_waited() - waited_before,
              .staged = staged};
  const auto begin = std::chrono::steady_clock::now();
  input_seconds_ = std::chrono::duration<double>(begin - start).count();
  strategy.run(body_);
  seconds_ = seconds_since(begin);
  return results_.front();
}

strategy::StepBreakdown StepRunner::breakdown() const {
  strategy::StepBreakdown breakdown = replicas_[0].breakdown();
  breakdown.input = input_seconds_;
  return breakdown;
}

StepLogs StepRunner::logs(const Position& position) const {
  const strategy::StepResult& result = results_.front();
  strategy::Replica& replica = replicas_[0];
  StepLogs logs{.step = position.step,
                .epoch = position.epochs_done,
                .metrics = result.applied ? result.report.metrics : model::MetricSums{},
                .samples = parts_.front().global_samples,
                .learning_rate = request_.learning_rate,
                .gradient_norm = result.gradient_norm,
                .input_wait_seconds = stream_->seconds_waited(),
                .communication = replica.communication(),
                .busy = replica.busy(),
                .breakdown = breakdown(),
                .data_workers = stream_->workers(),
                .data_processor_seconds = stream_->processor_seconds(),
                .skipped = !result.applied,
                .overflow = result.overflow,
                .loss_scale = replica.loss_scaler().is_on() ? std::optional(result.loss_scale)
                                                            : std::nullopt};
  logs.metrics.classes = replicas_.classes();
  return logs;
}

}  // namespace lockstep::inline v0::train
