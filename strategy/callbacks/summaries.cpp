#include "strategy/callbacks/summaries.h"

#include <utility>

#include "device/error.h"

namespace lockstep::strategy {

Summaries::Summaries(const std::filesystem::path& directory, std::int64_t log_every, const std::string& configuration,
                     std::shared_ptr<device::Logger> logger)
    : directory_(directory),
      log_every_(log_every),
      logger_(logger ? std::move(logger) : device::make_logger()),
      train_(directory / "train") {
  attempt([&] { train_.text("configuration", 0, configuration); });
  flush(train_);
}

void Summaries::attempt(const std::function<void()>& write) {
  try {
    write();
  } catch (const Error& error) {
    if (!std::exchange(warned_, true))
      logger_->warn("{}; the training continues, and summaries are tried again", error.what());
  }
}

void Summaries::add(SummaryWriter& writer, const char* tag, std::int64_t step, double value) {
  attempt([&] { writer.scalar(tag, step, value); });
}

void Summaries::add_epoch(SummaryWriter& writer, std::int64_t epoch, const model::MetricSums& metrics) {
  add(writer, "epoch_loss", epoch, metrics.mean_loss());
  if (!metrics.has_accuracy) return;
  add(writer, "epoch_accuracy", epoch, metrics.accuracy());
  add(writer, "epoch_top5_accuracy", epoch, metrics.top5_accuracy());
}

void Summaries::flush(SummaryWriter& writer) {
  attempt([&] { writer.flush(); });
}

void Summaries::on_batch_end(const StepLogs& logs) {
  if (logs.skipped || log_every_ == 0 || logs.step % log_every_ != 0) return;
  add(train_, "batch_loss", logs.step, logs.metrics.mean_loss());
  if (logs.metrics.has_accuracy) add(train_, "batch_accuracy", logs.step, logs.metrics.accuracy());
  add(train_, "batch_learning_rate", logs.step, logs.learning_rate);
}

void Summaries::on_epoch_end(const EpochLogs& logs) {
  add_epoch(train_, logs.epoch, logs.metrics);
  add(train_, "epoch_learning_rate", logs.epoch, logs.learning_rate);
  add(train_, "epoch_samples_per_second", logs.epoch, logs.samples_per_second);
  flush(train_);
  if (!logs.validation) return;
  if (!validation_) attempt([&] { validation_.emplace(directory_ / "validation"); });
  if (!validation_) {
    unwritten_ += logs.validation->has_accuracy ? 3 : 1;
    return;
  }
  add_epoch(*validation_, logs.epoch, *logs.validation);
  flush(*validation_);
}

// What leads to a checkpoint is on the disk with it.
void Summaries::on_checkpoint(const CheckpointLogs& /*logs*/) { flush(train_); }

void Summaries::on_train_end(const TrainEnd& /*end*/) {
  flush(train_);
  const std::int64_t lost = train_.lost_events() + (validation_ ? validation_->lost_events() : 0) + unwritten_;
  if (lost > 0) logger_->warn("[{}] {} points of the summaries are lost", directory_.string(), lost);
}

}  // namespace lockstep::strategy
