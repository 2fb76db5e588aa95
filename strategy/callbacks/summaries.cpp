#include "strategy/callbacks/summaries.h"

namespace lockstep::strategy {
namespace {

void add_epoch(SummaryWriter& writer, std::int64_t epoch, const model::MetricSums& metrics) {
  writer.scalar("epoch_loss", epoch, metrics.mean_loss());
  if (!metrics.has_accuracy) return;
  writer.scalar("epoch_accuracy", epoch, metrics.accuracy());
  writer.scalar("epoch_top5_accuracy", epoch, metrics.top5_accuracy());
}

}  // namespace

Summaries::Summaries(const std::filesystem::path& directory, std::int64_t log_every, const std::string& configuration)
    : directory_(directory), log_every_(log_every), train_(directory / "train") {
  train_.text("configuration", 0, configuration);
  train_.flush();
}

void Summaries::on_batch_end(const StepLogs& logs) {
  if (logs.skipped || log_every_ == 0 || logs.step % log_every_ != 0) return;
  train_.scalar("batch_loss", logs.step, logs.metrics.mean_loss());
  if (logs.metrics.has_accuracy) train_.scalar("batch_accuracy", logs.step, logs.metrics.accuracy());
  train_.scalar("batch_learning_rate", logs.step, logs.learning_rate);
}

void Summaries::on_epoch_end(const EpochLogs& logs) {
  add_epoch(train_, logs.epoch, logs.metrics);
  train_.scalar("epoch_learning_rate", logs.epoch, logs.learning_rate);
  train_.scalar("epoch_samples_per_second", logs.epoch, logs.samples_per_second);
  train_.flush();
  if (!logs.validation) return;
  if (!validation_) validation_.emplace(directory_ / "validation");
  add_epoch(*validation_, logs.epoch, *logs.validation);
  validation_->flush();
}

// What leads to a checkpoint is on the disk with it.
void Summaries::on_checkpoint(const CheckpointLogs& /*logs*/) { train_.flush(); }

void Summaries::on_train_end(const TrainEnd& /*end*/) { train_.flush(); }

}  // namespace lockstep::strategy
