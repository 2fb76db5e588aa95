#include "lockstep/train/tensorboard/summaries.h"

#include <fmt/format.h>
#include <spdlog/logger.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/strategy/replica/local_replicas.h"
#include "lockstep/train/tensorboard/confusion_image.h"
#include "lockstep/train/tensorboard/hyperparameters.h"
#include "lockstep/train/tensorboard/network_graph.h"
#include "lockstep/train/tensorboard/prediction_sheet.h"

namespace lockstep::inline v0::train {
namespace {

constexpr std::string_view kEventFilePrefix = "events.out.tfevents.";
constexpr std::string_view kSessionSuffix = "hparams.v2";

/// Returns the event files in `directory` whose names end in `suffix`. Ignores errors of listing.
std::vector<std::filesystem::path> event_files(const std::filesystem::path& directory,
                                               std::string_view suffix) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  std::filesystem::directory_iterator entry(directory, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with(kEventFilePrefix) && name.ends_with(suffix))
      files.push_back(entry->path());
  }
  return files;
}

/// Returns the factor that converts the gradients in memory after a step to those of the mean loss.
float gradient_scale(const StepLogs& logs) {
  float sums[model::SummableMetrics::kSize];
  model::SummableMetrics(logs.metrics).write(sums);
  return model::SummableMetrics::gradient_factor(sums) / logs.loss_scale.value_or(1);
}

}  // namespace

Summaries::Summaries(const std::filesystem::path& directory, std::int64_t log_every,
                     const std::string& configuration, std::shared_ptr<Logger> logger,
                     const SummaryOptions& options)
    : directory_(directory),
      log_every_(log_every),
      configuration_(configuration),
      options_(options),
      logger_(logger ? std::move(logger) : make_logger()),
      resumes_files_(!event_files(directory / "train", "").empty()),
      train_(directory / "train") {}

void Summaries::attempt(const std::function<void()>& write) {
  try {
    write();
  } catch (const Error& error) {
    if (!std::exchange(warned_, true))
      logger_->warn(
          fmt::format("{}; the training continues, and summaries are tried again", error.what()));
  }
}

void Summaries::add(SummaryWriter& writer, std::string_view tag, std::int64_t step, double value) {
  attempt([&] { writer.scalar(tag, step, value); });
}

void Summaries::add_values(SummaryWriter& writer, std::int64_t step,
                           std::span<const model::MetricValue> values,
                           const std::function<std::string(const std::string& name)>& tag) {
  for (const model::MetricValue& value : values) {
    if (value.is_single()) add(writer, tag(value.name), step, value.values.front());
    if (has_image(value))
      attempt([&] { writer.image(tag(value.name), step, confusion_image(value).view()); });
  }
}

void Summaries::add_epoch(SummaryWriter& writer, std::int64_t epoch,
                          const model::MetricSums& metrics,
                          const std::vector<model::MetricValue>& values) {
  if (metrics.samples == 0) return;  // there are no means
  add_values(writer, epoch, values, [](const std::string& name) { return "epoch_" + name; });
  add(writer, "epoch_loss", epoch, metrics.loss());
  if (metrics.has_accuracy()) add(writer, "epoch_accuracy", epoch, metrics.accuracy());
  if (metrics.has_top5()) add(writer, "epoch_top5_accuracy", epoch, metrics.top5_accuracy());
}

void Summaries::add_step_times(const StepLogs& logs) {
  const strategy::StepBreakdown mean = interval_.mean();
  if (mean.total() > 0) {
    add(train_, "batch_samples_per_second", logs.step,
        static_cast<double>(samples_) / interval_.sums().seconds.total());
    add(train_, "batch_seconds", logs.step, mean.total());
    for (const strategy::StepPart& part : strategy::kStepParts)
      add(train_, fmt::format("batch_{}_seconds", part.name), logs.step, mean.*part.member);
  }
  interval_.restart();
  samples_ = 0;
}

void Summaries::add_histograms(const StepLogs& logs) {
  strategy::Replica& replica = (*replicas_)[0];
  model::CompiledModel& model = replica.model();
  const auto add = [&](std::string_view kind, const model::ParameterTable& table,
                       std::span<const float> values) {
    for (const model::ParameterInfo& entry : table.entries())
      attempt([&] {
        train_.histogram(fmt::format("{}/{}", kind, entry.name), logs.step,
                         model::ParameterTable::slice(values, entry));
      });
  };
  add("weights", model.parameter_table(), replica.host_view(model.parameters()).values());
  device::HostView view = replica.host_view(model.gradients());
  std::span<const float> gradients = view.values();
  std::vector<float> scaled;
  if (const float scale = gradient_scale(logs); scale != 1) {
    scaled.assign(gradients.begin(), gradients.end());
    for (float& value : scaled) value *= scale;
    gradients = scaled;
  }
  add("gradients", model.trained_table(), gradients);
}

// A separate file that each run replaces: TensorBoard reads the values from the metadata of the
// first event of a tag, so it would ignore those of a new run in an old directory.
void Summaries::begin_session(const std::vector<Hyperparameter>& hyperparameters) {
  if (hyperparameters.empty()) return;
  std::error_code ignored;
  for (const std::filesystem::path& file : event_files(directory_, kSessionSuffix))
    std::filesystem::remove(file, ignored);
  attempt([&] {
    session_.emplace(directory_, kSessionSuffix);
    session_->plugin_data(kSessionStartTag, kHyperparametersPlugin,
                          session_start(hyperparameters, seconds_since_1970()));
    session_->flush();
  });
}

void Summaries::flush(SummaryWriter& writer) {
  attempt([&] { writer.flush(); });
}

void Summaries::on_train_begin(const TrainBegin& begin) {
  // A resumed run repeats no step up to first_step; a new run replaces all points in the directory.
  const std::int64_t first = begin.first_step > 0 ? begin.first_step + 1 : 0;
  train_.begin_run(first);
  attempt([&] { train_.text("configuration", first, configuration_); });
  interval_.begin(begin);
  samples_ = 0;
  replicas_ = begin.replicas;
  class_names_ = begin.class_names;
  // Written once: TensorBoard does not drop the graph of an earlier run.
  if (replicas_ != nullptr && (begin.first_step == 0 || !resumes_files_))
    attempt([&] { train_.graph(first, network_graph(replicas_->network())); });
  flush(train_);
  begin_session(begin.hyperparameters);
}

void Summaries::on_batch_end(const StepLogs& logs) {
  interval_.add(logs);
  samples_ = interval_.steps() == 0 ? 0 : samples_ + logs.samples;  // without the first step
  const std::int64_t every = options_.histogram_every;
  if (every > 0 && logs.step % every == 0 && !logs.skipped && replicas_ != nullptr)
    add_histograms(logs);
  if (logs.skipped || log_every_ == 0 || logs.step % log_every_ != 0) return;
  add(train_, "batch_loss", logs.step, logs.metrics.loss());
  if (logs.metrics.has_accuracy())
    add(train_, "batch_accuracy", logs.step, logs.metrics.accuracy());
  add(train_, "batch_learning_rate", logs.step, logs.learning_rate);
  add_step_times(logs);
}

void Summaries::on_epoch_end(const EpochLogs& logs) {
  if (!logs.complete) return flush(train_);  // a resumed run reports the whole epoch
  add_epoch(train_, logs.epoch, logs.metrics, logs.values);
  add(train_, "epoch_learning_rate", logs.epoch, logs.learning_rate);
  add(train_, "epoch_samples_per_second", logs.epoch, logs.samples_per_second);
  add(train_, "epoch_seconds", logs.epoch, logs.seconds);
  if (logs.validation) add(train_, "epoch_validation_seconds", logs.epoch, logs.validation_seconds);
  add(train_, "epoch_input_seconds", logs.epoch, logs.input_wait_seconds);
  add(train_, "epoch_communication_seconds", logs.epoch,
      logs.communication.exposed - logs.communication.waited);
  add(train_, "epoch_waiting_seconds", logs.epoch, logs.communication.waited);
  flush(train_);
  if (!logs.validation) return;
  if (!validation_)
    attempt([&] {
      validation_.emplace(directory_ / "validation");
      validation_->begin_run(logs.epoch);
    });
  if (!validation_) {
    unwritten_ +=
        1 + (logs.validation->has_accuracy() ? 1 : 0) + (logs.validation->has_top5() ? 1 : 0);
    unwritten_ += std::ranges::count_if(
        logs.validation_values,
        [](const model::MetricValue& value) { return value.is_single() || has_image(value); });
    return;
  }
  add_epoch(*validation_, logs.epoch, *logs.validation, logs.validation_values);
  flush(*validation_);
}

// Writes to train_, which begins at the step where a run resumes. validation_ begins at an epoch,
// from which TensorBoard would drop all steps of the earlier run.
void Summaries::on_validation(const EpochLogs& logs) {
  const model::MetricSums& metrics = *logs.validation;
  add(train_, "evaluation_loss_vs_iterations", logs.step, metrics.loss());
  if (metrics.has_accuracy())
    add(train_, "evaluation_accuracy_vs_iterations", logs.step, metrics.accuracy());
  add_values(train_, logs.step, logs.validation_values, [](const std::string& name) {
    return fmt::format("evaluation_{}_vs_iterations", name);
  });
}

void Summaries::on_predictions(const ImagePredictions& predictions) {
  attempt([&] {
    train_.image(
        "predictions", predictions.step,
        prediction_sheet(predictions,
                         predictions.has_class_names ? class_names_ : std::vector<std::string>())
            .view());
  });
}

void Summaries::on_scalar(const ScalarLogs& logs) { add(train_, logs.name, logs.step, logs.value); }

void Summaries::on_checkpoint(const CheckpointLogs& logs) {
  add(train_, "checkpoint_seconds", logs.step, logs.seconds);
  flush(train_);
}

void Summaries::on_train_end(const TrainEnd& end) {
  flush(train_);
  replicas_ = nullptr;
  // A run that a signal or an error ended is not complete, and may be resumed.
  if (session_ && end.signal == 0 && end.healthy)
    attempt([&] {
      session_->plugin_data(kSessionEndTag, kHyperparametersPlugin,
                            session_end(seconds_since_1970()));
      session_->flush();
    });
  const std::int64_t lost = train_.lost_events() + (validation_ ? validation_->lost_events() : 0) +
                            (session_ ? session_->lost_events() : 0) + unwritten_;
  if (lost > 0)
    logger_->warn(
        fmt::format("[{}] {} points of the summaries are lost", directory_.string(), lost));
}

}  // namespace lockstep::inline v0::train
