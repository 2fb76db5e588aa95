#include "lockstep/train/fit/fit_loop.h"

#include <fmt/format.h>
#include <spdlog/logger.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "lockstep/base/clock.h"
#include "lockstep/base/trace/events.h"
#include "lockstep/base/trace/recording.h"
#include "lockstep/data/sample/record_source.h"
#include "lockstep/model/layer/backend.h"
#include "lockstep/model/layers/layers.h"
#include "lockstep/train/evaluation/evaluation.h"
#include "lockstep/train/fit/fit_state.h"
#include "lockstep/train/input/data_names.h"
#include "lockstep/train/input/data_warnings.h"
#include "lockstep/train/input/target_scale.h"
#include "lockstep/train/step/trace_file.h"

namespace lockstep::inline v0::train {
namespace {

/// Logs the error of a 16-bit wire type.
void log_wire_error(strategy::LocalReplicas& replicas, allreduce::WireType wire) {
  const strategy::Strategy& strategy = replicas.strategy();
  if (wire == allreduce::WireType::float32 || !strategy.is_chief()) return;
  const allreduce::WireError& error = replicas[0].buckets().wire_error();
  strategy.session().logger()->info(fmt::format(
      "gradients are exchanged as {}: the sum of the first step differs from that in float32 by "
      "{:.2e} of its norm, and by at most {:.2e} in one element",
      to_string(wire), error.relative, error.largest));
}

/// Warns of bounded outputs: a cross-entropy loss applies a softmax or a sigmoid itself.
void warn_of_activation(const strategy::Strategy& strategy, const model::Network& network,
                        const model::LossTerm& loss) {
  const std::string_view applied = model::activation_of(loss.loss);
  if (!strategy.is_chief() || network.nodes().empty() || applied.empty()) return;
  const model::Node& last = network.nodes()[network.outputs()[loss.output].node];
  const model::LayerType* const type = model::find_type(*last.layer);
  if (type == nullptr || !type->is_activation) return;
  strategy.session().logger()->warn(fmt::format(
      "[{}] the network ends with a {}, and the cross-entropy loss applies a {} to its "
      "outputs{}: training on both is slow and keeps the loss high; remove the layer from the "
      "network (evaluate and predict compute probabilities from the logits)",
      last.name, type->name, applied, type->name == applied ? " too" : ""));
}

/// Logs the memory on GPUs, where it limits the batch size, and if activations are recomputed.
void log_memory(strategy::LocalReplicas& replicas) {
  const strategy::Strategy& strategy = replicas.strategy();
  const device::Device device = strategy.device(0);
  const bool recomputes = replicas[0].model().recompute() != model::Recompute::none;
  if ((device.kind != device::DeviceKind::gpu && !recomputes) || !strategy.is_chief()) return;
  constexpr double kBytes = 1 << 20;
  const model::CompiledModel::Memory memory = replicas[0].model().memory();
  const std::size_t slots = replicas[0].optimizer().slot_names().size() *
                            replicas.network().trained().flat_size() * sizeof(float);
  const auto mebibytes = [&](std::size_t bytes) { return static_cast<double>(bytes) / kBytes; };
  strategy.session().logger()->info(fmt::format(
      "{} holds {:.1f} MiB: parameters {:.1f}, gradients {:.1f}, optimizer {:.1f}, activations "
      "{:.1f}{}",
      to_string(device), mebibytes(memory.total() + slots), mebibytes(memory.parameters),
      mebibytes(memory.gradients), mebibytes(slots), mebibytes(memory.activations),
      recomputes ? " (some are computed again)" : ""));
}

/// Logs the chosen implementations, and the time if algorithms were measured, which can delay the
/// first step by a minute.
void log_choosing(strategy::LocalReplicas& replicas) {
  const strategy::Strategy& strategy = replicas.strategy();
  if (!strategy.is_chief()) return;
  const model::Backend& backend = replicas[0].model().backend();
  for (const std::string& choice : backend.choices())
    strategy.session().logger()->info(
        fmt::format("{} computes {}", to_string(strategy.device(0)), choice));
  const double seconds = backend.tuning_seconds();
  if (seconds == 0) return;
  strategy.session().logger()->info(
      fmt::format("{} measured the algorithms of its convolutions in {:.1f} s",
                  to_string(strategy.device(0)), seconds));
}

}  // namespace

FitLoop::FitLoop(strategy::LocalReplicas& replicas, const strategy::TrainerOptions& trainer,
                 const data::Dataset& dataset, const FitOptions& fit)
    : replicas_(replicas),
      strategy_(replicas.strategy()),
      stop_(strategy_, fit),
      plan_(strategy_, trainer, dataset, fit),
      callbacks_(strategy_, fit.callbacks),
      checkpoints_(replicas, fit.checkpoint),
      epoch_(replicas, plan_),
      health_(strategy_),
      buckets_(replicas),
      profiling_(replicas, fit.profile),
      images_(replicas, fit),
      tracing_(strategy_.session(), strategy_.ranks(),
               strategy_.device(0).kind == device::DeviceKind::gpu, fit.trace,
               trace_writer(fit.trace.file)),
      steps_(replicas, plan_) {}

History FitLoop::run() try {
  begin();
  run_steps();
  end();
  return std::move(history_);
} catch (const std::exception& error) {
  tracing_.fail();
  if (const auto* const own = dynamic_cast<const Error*>(&error);
      own != nullptr && own->category() == ErrorCategory::diverged)
    notify_diverged_end();
  callbacks_.notify(error);
  throw;
}

// For a training that diverges early, on all ranks; at the end of a training, end() notifies.
void FitLoop::notify_diverged_end() noexcept {
  if (!has_begun_ || history_.end.steps > 0) return;
  try {
    history_.end = {.steps = position_.step,
                    .seconds = seconds_since(start_),
                    .parameter_hash = replicas_[0].parameter_hash(),
                    .skipped_steps = health_.skipped_steps(),
                    .healthy = false};
    notify([&](Callback& callback) { callback.on_train_end(history_.end); });
  } catch (...) {
    return;  // the error that ends the training is the one to report
  }
}

void FitLoop::run_steps() {
  clock_.begin();
  for (;;) {
    // This is first, so that a training that was stopped during validation reports the epoch, or
    // validates again, when it is resumed.
    if (position_.is_at_epoch_end())
      end_epoch(true);
    else if (must_validate())
      validate_within_epoch();
    if (checkpoints_.must_save(position_, is_ending(), health_.last_was_skipped())) save();
    if (is_ending()) break;
    tracing_.before_step(position_.step + 1);
    train_step();
    if (const double seconds = tracing_.after_step(position_.step); seconds > 0) {
      epoch_.pause(seconds);
      clock_.exclude(seconds);
    }
  }
  if (stop_.signal() != 0 || !position_.is_in_epoch() || position_.step == position_.first_step)
    return;
  end_epoch(false);
  if (checkpoints_.must_save(position_, true, health_.last_was_skipped())) save();
}

void FitLoop::begin() {
  const allreduce::PhaseScope starting(&strategy_.activity(0), allreduce::Phase::starting);
  plan_.agree(replicas_);
  restore();
  trace::set_step(position_.step);
  trace::set_recording_directory(plan_.fit.checkpoint.directory);
  profiling_.begin(position_);
  tracing_.begin();
  const auto initialized_from = initialize();
  replicas_.check_agreement(position_.step);
  if (plan_.trainer.buckets.wire != allreduce::WireType::float32)
    replicas_.run([](strategy::Replica& replica, int) { replica.measure_wire_error(); });
  buckets_.begin(plan_.trainer.tune_buckets);
  if (!position_.is_done()) {
    report_table(strategy_, plan_.dataset);
    if (plan_.validation)
      report_table(strategy_, *plan_.validation, plan_.dataset.source().info().table.get());
    warn_of_scales(strategy_, plan_.dataset, has_scaled_targets(replicas_.network()));
    for (const model::LossTerm& term : replicas_.loss().terms())
      warn_of_activation(strategy_, replicas_.network(), term);
    prepare();
  }
  stop_.begin();
  callbacks_.begin();
  if (!position_.is_done()) steps_.begin(position_);
  TrainBegin begin = plan_.announcement(replicas_, position_);
  begin.restored_from = checkpoints_.restored_from();
  if (initialized_from) {
    begin.initialized_from = initialized_from->file;
    begin.uninitialized_head = initialized_from->uninitialized_head;
  }
  has_begun_ = true;
  notify([&](Callback& callback) { callback.on_train_begin(begin); });
  interval_.begin(begin);
  judged_.begin(begin);
  callbacks_.restore(restored_callbacks_);
  const std::int64_t last = std::max<std::int64_t>(0, position_.step - 1);
  rate_ = callbacks_.learning_rate(last, plan_.schedule.rate(last));
  agree_on_requests();
}

void FitLoop::restore() {
  position_ = plan_.start();
  position_.updates = replicas_.updates();
  const auto restored = checkpoints_.restore(to_training_state(state(), plan_, replicas_));
  if (!restored) return;
  const FitState saved = resume_from(*restored, plan_, replicas_);
  position_ = saved.position;
  epoch_.restore(saved.epoch);
  buckets_.restore(saved.tuned_bytes);
  checkpoints_.restore_best(saved.best);
  restored_callbacks_ = saved.callbacks;
}

std::optional<PretrainedWeights> FitLoop::initialize() {
  if (!plan_.fit.pretrained) return std::nullopt;
  if (!checkpoints_.restored_from()) {
    PretrainedWeights weights = initialize_from(replicas_, *plan_.fit.pretrained);
    const std::string other = strategy_.is_chief()
                                  ? describe_name_mismatch(plan_.dataset, weights.file,
                                                           weights.uninitialized_head.empty())
                                  : std::string();
    if (!other.empty())
      strategy_.session().logger()->warn(fmt::format(
          "the weights of {} are those of other data: {}", weights.file.string(), other));
    return weights;
  }
  if (strategy_.is_chief())
    strategy_.session().logger()->info(
        fmt::format("pretrained weights are ignored: the training resumes from {}",
                    checkpoints_.restored_from()->string()));
  return std::nullopt;
}

// Allocates memory for all batch sizes before the first step: full batches, and the smaller last
// one of an epoch.
void FitLoop::prepare() {
  const bool ends_an_epoch =
      position_.last_step >= (position_.epochs_done + 1) * position_.steps_per_epoch;
  replicas_.run([&](strategy::Replica& replica, int local) {
    const auto prepare = [&](const data::Dataset& dataset, bool training, bool to_the_end) {
      const std::int64_t batch = std::min(dataset.global_batch(), dataset.size());
      replica.prepare(batch, training);
      if (to_the_end && dataset.size() % batch > 0)
        replica.prepare(dataset.size() % batch, training);
    };
    prepare(plan_.dataset, true, ends_an_epoch);
    if (plan_.validation) prepare(*plan_.validation, false, true);
    if (plan_.test) prepare(*plan_.test, false, true);
    if (images_.is_on() && strategy_.is_chief() && local == 0)
      replica.model().prepare(std::min(plan_.fit.prediction_images, plan_.validation->size()),
                              false);
  });
  log_choosing(replicas_);
  const std::int64_t batch = std::min(plan_.dataset.global_batch(), plan_.dataset.size());
  const std::int64_t rest = plan_.dataset.size() % batch;
  if (!warn_of_single_values(batch, "every step") && ends_an_epoch && rest > 0)
    warn_of_single_values(rest, "the last step of an epoch");
}

bool FitLoop::warn_of_single_values(std::int64_t samples, std::string_view when) const {
  const model::Node* const node = strategy::find_normalization_of_one_value(
      replicas_.network(), samples, strategy_.num_replicas_in_sync(), plan_.trainer.micro_batches(),
      plan_.trainer.normalization);
  if (node != nullptr && strategy_.is_chief())
    strategy_.session().logger()->warn(fmt::format(
        "[{}] a micro-batch has a single value per channel in {}, which is normalized to 0 "
        "whatever "
        "it is: use a larger batch, fewer replicas or micro-batches, or synchronized normalization",
        node->name, when));
  return node != nullptr;
}

void FitLoop::train_step() {
  if (!epoch_.has_begun()) {
    epoch_.begin(position_, *steps_.stream());
    notify([this](Callback& callback) { callback.on_epoch_begin(position_.epochs_done); });
  }
  // Set before the callbacks, which may hang too. Counted from 1, as in all messages.
  trace::set_step(position_.step + 1);
  const trace::Span span("step");
  for (int local = 0; local < strategy_.local_replicas(); ++local)
    strategy_.activity(local).set_step(position_.step + 1);
  notify([this](Callback& callback) { callback.on_batch_begin(position_.step); });
  rate_ = callbacks_.learning_rate(position_.step, plan_.schedule.rate(position_.step));
  const strategy::StepResult& result = steps_.run(position_, rate_, stop_.received());
  buckets_.add_step(steps_.seconds());
  ++position_.step;
  const bool has_updated = result.applied && !result.weightless;
  if (has_updated) position_.updates += plan_.trainer.local.steps.value_or(1);
  end_step(result);
  const std::int64_t every = plan_.fit.check_replicas;
  if (every > 0 && position_.step % every == 0) replicas_.check_agreement(position_.step);
}

/// Each rank checks the records that it has read.
void FitLoop::warn_of_values(const std::vector<data::Batch>& parts) const {
  const std::string text = not_finite_text(plan_.dataset.source(), parts);
  if (!text.empty())
    strategy_.session().logger()->warn(fmt::format("step {}: {}", position_.step, text));
}

void FitLoop::end_step(const strategy::StepResult& result) {
  stop_.set_signal(result.report.signal());
  if (position_.step == position_.first_step + 1) {
    log_wire_error(replicas_, plan_.trainer.buckets.wire);
    log_memory(replicas_);
  }
  epoch_.add_step(steps_.parts(), result.applied);
  const auto diverged = health_.add(result, position_.step, replicas_[0].loss_scaler().scale());
  if (!result.applied) warn_of_values(steps_.parts());
  if (diverged) checkpoints_.throw_diverged(*diverged);
  if (result.applied && !result.weightless) {
    const double seconds = checkpoints_.confirm();
    epoch_.pause(seconds);
    clock_.add_checkpoint(seconds);
  }
  StepLogs logs = steps_.logs(position_);
  clock_.end_step(logs.breakdown);
  interval_.add(logs);
  judged_.add(logs);
  notify([&](Callback& callback) { callback.on_batch_end(logs); });
  stop_.after_step();
  if (stop_.take_save()) checkpoints_.request();
}

void FitLoop::agree_on_requests() {
  stop_.agree_on_callbacks();
  if (stop_.take_save()) checkpoints_.request();
}

void FitLoop::end_epoch(bool is_complete) {
  const auto start = std::chrono::steady_clock::now();
  EpochLogs logs = epoch_.logs(position_, is_complete, steps_.stream());
  logs.breakdown = interval_.mean();
  logs.verdict = judged_.verdict();
  if (is_complete)
    model::require_weights(logs.metrics, fmt::format("epoch {}", position_.epochs_done + 1));
  logs.learning_rate = rate_;
  if (!validate(logs)) return;
  checkpoints_.note(logs, health_.last_was_skipped());
  notify([&](Callback& callback) { callback.on_epoch_end(logs); });
  history_.epochs.push_back(logs);
  if (!is_complete) return;
  agree_on_requests();
  ++position_.epochs_done;
  epoch_.end();
  interval_.restart();
  if (logs.verdict) judged_.restart();
  clock_.exclude(seconds_since(start));
}

bool FitLoop::validate(EpochLogs& logs) {
  const FitOptions& fit = plan_.fit;
  if (!plan_.validation) return true;
  if (last_validation_ &&
      last_validation_->step == logs.step) {  // already validated with these parameters
    logs.validation = last_validation_->validation;
    logs.validation_values = last_validation_->validation_values;
    return true;
  }
  const auto start = std::chrono::steady_clock::now();
  notify([](Callback& callback) { callback.on_test_begin(); });
  replicas_.run([](strategy::Replica& replica, int) { replica.install_mean_statistics(); });
  data::StreamOptions pass = one_pass(strategy_, *plan_.validation, fit.read);
  pass.names_remedy = false;  // each record of a validation counts
  const auto validation =
      evaluate(replicas_, *plan_.validation, pass, [this] { return stop_.any_received(); });
  std::optional<ImagePredictions> shown;
  if (images_.is_on() && validation && strategy_.is_chief())
    shown = images_.predict(*plan_.validation, position_.step);
  replicas_.run([](strategy::Replica& replica, int) { replica.restore_statistics(); });
  if (!validation) {
    stop_.agree_on_signal();
    return false;
  }
  model::require_weights(*validation, "validation");
  logs.validation = *validation;
  logs.validation_values = validation->values;
  logs.validation_seconds = seconds_since(start);
  notify([&](Callback& callback) { callback.on_test_end(*logs.validation); });
  if (shown) notify([&](Callback& callback) { callback.on_predictions(*shown); });
  last_validation_ = logs;
  return true;
}

void FitLoop::test() {
  const bool has_trained = position_.step > position_.first_step;
  if (!plan_.test || !has_trained || stop_.signal() != 0 || !health_.is_healthy()) return;
  replicas_.run([](strategy::Replica& replica, int) { replica.install_mean_statistics(); });
  data::StreamOptions pass = one_pass(strategy_, *plan_.test, plan_.fit.read);
  pass.names_remedy = false;  // each record of a test counts
  const auto test = evaluate(replicas_, *plan_.test, pass, [this] { return stop_.any_received(); });
  replicas_.run([](strategy::Replica& replica, int) { replica.restore_statistics(); });
  if (!test) return;
  model::require_weights(*test, "test");
  history_.end.test = *test;
  history_.end.test_values = test->values;
}

bool FitLoop::must_validate() const {
  const std::int64_t every = plan_.fit.validate_every;
  return every > 0 && position_.is_in_epoch() && position_.step % every == 0 &&
         position_.step != position_.validated_step && !is_ending();
}

void FitLoop::validate_within_epoch() {
  const auto start = std::chrono::steady_clock::now();
  EpochLogs logs;
  logs.epoch = position_.epochs_done;
  logs.step = position_.step;
  logs.complete = false;
  logs.learning_rate = rate_;
  if (!validate(logs)) return;
  position_.validated_step = position_.step;
  checkpoints_.note(logs, health_.last_was_skipped());
  notify([&](Callback& callback) { callback.on_validation(logs); });
  agree_on_requests();
  const double seconds = seconds_since(start);
  if (epoch_.has_begun()) epoch_.pause(seconds);
  clock_.exclude(seconds);
}

void FitLoop::save() {
  const auto start = std::chrono::steady_clock::now();
  const allreduce::PhaseScope saving(&strategy_.activity(0), allreduce::Phase::saving);
  epoch_.collect();
  FitState now = state();
  now.callbacks = callbacks_.states();
  now.is_finished = is_ending() && stop_.signal() == 0;
  const auto path =
      checkpoints_.save(to_training_state(now, plan_, replicas_), health_, is_ending());
  const double seconds = seconds_since(start);
  epoch_.pause(seconds);
  clock_.add_checkpoint(seconds);
  if (!path) return;
  notify([&](Callback& callback) {
    callback.on_checkpoint({.step = position_.step, .path = *path, .seconds = seconds});
  });
}

void FitLoop::end() {
  tracing_.finish();
  replicas_.set_updates(position_.updates);
  history_.end = {.steps = position_.step,
                  .seconds = seconds_since(start_),
                  .parameter_hash = replicas_[0].parameter_hash(),
                  .skipped_steps = health_.skipped_steps(),
                  .healthy = health_.is_healthy(),
                  .signal = stop_.signal(),
                  .stopped = stop_.by_callback(),
                  .stop_reason = stop_.reason(),
                  .profile = profiling_.end()};
  test();
  notify([&](Callback& callback) { callback.on_train_end(history_.end); });
  const auto diverged = health_.at_end(stop_.signal());
  if (history_.end.profile) profiling_.write(*history_.end.profile, diverged.has_value());
  if (diverged) checkpoints_.throw_diverged(*diverged);
  tracing_.throw_if_lost();
}

FitState FitLoop::state() const {
  return {.position = position_,
          .epoch = epoch_.totals(),
          .tuned_bytes = buckets_.chosen(),
          .best = checkpoints_.best()};
}

}  // namespace lockstep::inline v0::train
