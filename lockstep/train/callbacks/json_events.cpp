#include "lockstep/train/callbacks/json_events.h"

#include <fmt/format.h>
#include <spdlog/logger.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json/json.h"
#include "lockstep/base/system/host.h"
#include "lockstep/checkpoint/files.h"
#include "lockstep/data/table/schema.h"
#include "lockstep/train/callbacks/metric_text.h"

namespace lockstep::inline v0::train {
namespace {

using Json = nlohmann::ordered_json;

void add_metrics(Json& event, const std::string& prefix, const model::MetricSums& metrics) {
  event[prefix + "loss"] = metrics.loss();
  if (metrics.has_accuracy()) event[prefix + "accuracy"] = metrics.accuracy();
  if (metrics.has_top5()) event[prefix + "top5_accuracy"] = metrics.top5_accuracy();
}

/// Adds mean milliseconds per step of exposed communication and of waiting for slower replicas.
void add_communication(Json& event, const allreduce::CommunicationTimes& times,
                       std::int64_t steps) {
  const double milliseconds = 1000.0 / static_cast<double>(steps);
  event["exposed_communication_ms"] = (times.exposed - times.waited) * milliseconds;
  event["waiting_ms"] = times.waited * milliseconds;
}

/// Adds mean seconds per step, if there is a step.
void add_breakdown(Json& event, const strategy::StepBreakdown& step) {
  if (step == strategy::StepBreakdown{}) return;
  for (const strategy::StepPart& part : strategy::kStepParts)
    event["breakdown"][part.name] = step.*part.member;
}

void add_verdict(Json& event, const std::optional<strategy::Verdict>& verdict) {
  if (!verdict) return;
  if (!verdict->bound_by.empty()) event["bound_by"] = verdict->bound_by;
  event["verdict"] = verdict->text;
}

/// Adds mean milliseconds per step of each replica, to a microsecond.
void add_replicas(Json& event, std::span<const allreduce::BusySeconds> busy,
                  std::span<const double> waiting, std::int64_t steps) {
  const auto mean = [steps](double seconds) {
    return std::round(1e6 * seconds / static_cast<double>(steps)) / 1e3;
  };
  for (const char* name : {"replica_input_ms", "replica_compute_ms", "replica_waiting_ms"})
    event[name] = Json::array();
  for (std::size_t i = 0; i < busy.size(); ++i) {
    event["replica_input_ms"].push_back(mean(busy[i].input));
    event["replica_compute_ms"].push_back(mean(busy[i].compute));
    event["replica_waiting_ms"].push_back(mean(waiting[i]));
  }
}

Json device_of(const job::Placement& place) {
  Json device = {{"replica", place.replica}, {"rank", place.rank},
                 {"host", place.host},       {"local_rank", place.local_rank},
                 {"device", place.device},   {"cores", place.cores}};
  if (!place.interface.empty()) device["interface"] = place.interface;
  if (!place.is_on_gpu()) return device;
  device["gpu"] = place.gpu.name;
  device["uuid"] = place.gpu.uuid;
  if (place.gpu.numa_node >= 0) device["numa_node"] = place.gpu.numa_node;
  device["memory_bytes"] = place.gpu.bytes;
  return device;
}

}  // namespace

void add_metric_values(Json& event, const std::string& prefix,
                       std::span<const model::MetricValue> values) {
  for (const model::MetricValue& value : values) {
    Json& member = event[prefix + value.name];
    if (value.is_single()) {
      member = value.values.front();
    } else if (value.shape.size() == 1) {
      member = value.values;
    } else {
      member = Json::array();
      const auto columns = static_cast<std::size_t>(value.shape.back());
      for (auto rest = std::span(value.values); !rest.empty(); rest = rest.subspan(columns))
        member.push_back(std::vector<double>(rest.begin(), rest.begin() + value.shape.back()));
    }
  }
}

JsonEvents::JsonEvents(std::FILE* out, std::int64_t log_every, std::string run,
                       std::vector<std::pair<std::string, std::string>> options)
    : out_(out), log_every_(log_every), run_(std::move(run)), options_(std::move(options)) {}

JsonEvents::JsonEvents(std::filesystem::path file, std::int64_t log_every, std::string run,
                       std::vector<std::pair<std::string, std::string>> options,
                       std::shared_ptr<Logger> logger)
    : file_(std::move(file)),
      logger_(logger ? std::move(logger) : make_logger()),
      log_every_(log_every),
      run_(std::move(run)),
      options_(std::move(options)) {}

void JsonEvents::open(bool appends) {
  owned_.reset(std::fopen(file_.c_str(), appends ? "a+e" : "we"), [](std::FILE* opened) {
    if (opened != nullptr) std::fclose(opened);
  });
  out_ = owned_.get();
  if (out_ == nullptr)
    throw Error(ErrorCategory::output, file_.string(), "expected to write the events to this file",
                std::generic_category().message(errno));
  // A run that was killed may have left a part of a line.
  const bool is_cut_off =
      appends && std::fseek(out_, -1, SEEK_END) == 0 && std::fgetc(out_) != '\n';
  std::fseek(out_, 0, SEEK_END);  // between reading and writing, as C requires
  if (is_cut_off) std::fputc('\n', out_);
}

void JsonEvents::write(Json event) {
  if (std::ferror(out_) != 0) return;
  event["time"] = seconds_since_1970();
  const std::string line = dump_json(event) + '\n';
  std::fwrite(line.data(), 1, line.size(), out_);
  std::fflush(out_);
  if (logger_ && std::ferror(out_) != 0)
    logger_->warn(fmt::format("{} cannot be written: {}; the training continues without its events",
                              file_.string(), std::generic_category().message(errno)));
}

void JsonEvents::on_train_begin(const TrainBegin& begin) {
  if (!file_.empty()) open(begin.restored_from.has_value());
  best_.reset();
  first_step_ = begin.first_step;
  nothing_trained_ = begin.nothing_to_do();
  interval_.begin(begin);
  judged_.begin(begin);
  Json event = {{"event", "start"},
                {"world_size", begin.world_size},
                {"ranks", begin.ranks},
                {"nodes", begin.nodes},
                {"strategy", begin.strategy},
                {"allreduce", begin.allreduce},
                {"allreduce_reason", begin.allreduce_reason},
                {"transport", begin.transport},
                {"transport_reason", begin.transport_reason},
                {"global_batch", begin.global_batch},
                {"per_replica_batch", begin.per_replica_batch},
                {"micro_batch", begin.micro_batch},
                {"model", begin.model},
                {"parameters", begin.parameters},
                {"trained_parameters", begin.parameters - begin.frozen_parameters},
                {"precision", begin.precision},
                {"bn", begin.normalization},
                {"data", begin.data},
                {"records", begin.records},
                {"steps_per_epoch", begin.steps_per_epoch},
                {"first_step", begin.first_step},
                {"last_step", begin.last_step},
                {"learning_rate", shortest(begin.learning_rate)},
                {"seed", begin.seed},
                {"start_seconds", begin.start_seconds},
                {"resident_bytes", resident_bytes()}};
  if (!begin.caveat.empty()) event["caveat"] = begin.caveat;
  if (begin.table) event["table"] = begin.table->summary_json();
  if (begin.split) {
    const auto& [training, validation, test] = begin.split->records;
    event["split"] = {{"training", training}, {"validation", validation}, {"test", test}};
    if (!begin.split->label.empty()) event["split"]["stratified_by"] = begin.split->label;
  }
  event["shard_policy"] = begin.shard_policy;
  event["files"] = begin.files.size();
  event["shares"] = Json::array();
  for (std::size_t rank = 0; rank < begin.shares.size(); ++rank) {
    const data::WorkerShare& share = begin.shares[rank];
    event["shares"].push_back({{"rank", rank},
                               {"files", share.files},
                               {"records", share.records},
                               {"bytes", share.bytes}});
  }
  event["damaged_files"] = Json::array();
  for (const data::DamagedFile& file : begin.damaged_files)
    event["damaged_files"].push_back(file.text());
  event["devices"] = Json::array();
  for (const job::Placement& place : begin.placements) event["devices"].push_back(device_of(place));
  if (begin.restored_from) event["restored_from"] = begin.restored_from->string();
  if (begin.initialized_from) event["initialized_from"] = begin.initialized_from->string();
  if (!run_.empty()) event["run"] = run_;
  if (!options_.empty()) {
    Json& options = event["options"] = Json::object();
    for (const auto& [name, value] : options_) options[name] = value;
  }
  write(std::move(event));
}

void JsonEvents::on_epoch_begin(std::int64_t /*epoch*/) {
  since_ = std::chrono::steady_clock::now();
  samples_ = 0;
}

void JsonEvents::add_waiting(std::span<const allreduce::BusySeconds> busy) {
  waiting_.resize(busy.size());
  double slowest = 0;
  for (const allreduce::BusySeconds& own : busy)
    slowest = std::max(slowest, own.input + own.compute);
  for (std::size_t i = 0; i < busy.size(); ++i)
    waiting_[i] += slowest - busy[i].input - busy[i].compute;
}

void JsonEvents::on_batch_end(const StepLogs& logs) {
  samples_ += logs.samples;
  interval_.add(logs);
  judged_.add(logs);
  if (interval_.steps() == 0)  // the first step of the run
    communication_ = logs.communication;
  else if (logs.busy.size() > 1)
    add_waiting(logs.busy);
  if (log_every_ == 0 || logs.step % log_every_ != 0) return;
  const auto now = std::chrono::steady_clock::now();
  const double seconds = std::chrono::duration<double>(now - since_).count();
  Json event = {{"event", "step"}, {"step", logs.step}, {"epoch", logs.epoch}};
  if (logs.skipped)
    event["skipped"] = true;
  else
    add_metrics(event, "", logs.metrics);
  if (logs.overflow) event["overflow"] = true;
  if (logs.loss_scale) event["loss_scale"] = *logs.loss_scale;
  event["samples_per_second"] = static_cast<double>(samples_) / seconds;
  event["learning_rate"] = shortest(logs.learning_rate);
  if (logs.gradient_norm > 0) event["gradient_norm"] = logs.gradient_norm;
  event["input_wait_seconds"] = logs.input_wait_seconds;
  if (const std::int64_t steps = interval_.steps(); steps > 0) {
    add_communication(event, logs.communication - communication_, steps);
    add_breakdown(event, interval_.mean());
    if (!waiting_.empty()) add_replicas(event, interval_.sums().busy, waiting_, steps);
  }
  interval_.restart();
  const std::optional<strategy::Verdict> verdict = judged_.verdict();
  if (verdict) judged_.restart();
  add_verdict(event, verdict);
  write(std::move(event));
  since_ = now;
  samples_ = 0;
  communication_ = logs.communication;
  waiting_.clear();
}

/// Excludes time outside of training from the rate of the next event `step`.
void JsonEvents::exclude(double seconds) {
  since_ += std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(seconds));
}

void JsonEvents::note_epoch(const EpochLogs& logs) {
  const model::MetricSums& metrics = logs.validation ? *logs.validation : logs.metrics;
  const double loss = metrics.loss();
  if (!std::isfinite(loss)) return;
  const auto is_better = [&](const model::MetricSums& best) {
    return metrics.has_accuracy() ? metrics.accuracy() > best.accuracy() : loss < best.loss();
  };
  if (!best_ || is_better(best_->metrics))
    best_ = BestEpoch{logs.epoch, metrics, logs.validation.has_value()};
}

void JsonEvents::on_epoch_end(const EpochLogs& logs) {
  note_epoch(logs);
  Json event = {{"event", "epoch"},
                {"epoch", logs.epoch},
                {"step", logs.step},
                {"complete", logs.complete},
                {"samples", logs.samples},
                {"seconds", logs.seconds},
                {"samples_per_second", logs.samples_per_second}};
  add_metrics(event, "", logs.metrics);
  add_metric_values(event, "", logs.values);
  if (logs.validation) {
    add_metrics(event, "validation_", *logs.validation);
    add_metric_values(event, "validation_", logs.validation_values);
    event["validation_samples"] = logs.validation->samples;
    event["validation_seconds"] = logs.validation_seconds;
  }
  event["learning_rate"] = shortest(logs.learning_rate);
  event["skipped_samples"] = logs.skipped_samples;
  event["times_seen"] = logs.times_seen;
  event["bad_records"] = Json::array();
  for (const BadFile& bad : logs.bad_files)
    event["bad_records"].push_back(
        {{"file", bad.file}, {"records", bad.records}, {"first", bad.first}});
  event["input_wait_seconds"] = logs.input_wait_seconds;
  event["data_workers"] = logs.data_workers;
  event["exposed_communication_seconds"] = logs.communication.exposed - logs.communication.waited;
  event["waiting_seconds"] = logs.communication.waited;
  add_breakdown(event, logs.breakdown);
  add_verdict(event, logs.verdict);
  write(std::move(event));
}

void JsonEvents::on_validation(const EpochLogs& logs) {
  exclude(logs.validation_seconds);
  Json event = {{"event", "validation"}, {"step", logs.step}, {"epoch", logs.epoch}};
  add_metrics(event, "validation_", *logs.validation);
  add_metric_values(event, "validation_", logs.validation_values);
  event["validation_samples"] = logs.validation->samples;
  event["validation_seconds"] = logs.validation_seconds;
  write(std::move(event));
}

void JsonEvents::on_scalar(const ScalarLogs& logs) {
  write({{"event", "scalar"}, {"step", logs.step}, {"name", logs.name}, {"value", logs.value}});
}

void JsonEvents::on_checkpoint(const CheckpointLogs& logs) {
  exclude(logs.seconds);
  write({{"event", "checkpoint"},
         {"step", logs.step},
         {"path", logs.path.string()},
         {"seconds", logs.seconds}});
}

void JsonEvents::on_train_end(const TrainEnd& end) {
  Json event = {{"event", "end"},
                {"steps", end.steps},
                {"steps_trained", end.steps - first_step_},
                {"seconds", end.seconds},
                {"parameter_hash", checkpoint::hex16(end.parameter_hash)},
                {"skipped_steps", end.skipped_steps},
                {"healthy", end.healthy}};
  if (!nothing_trained_.empty()) event["nothing_trained"] = nothing_trained_;
  if (end.signal != 0) event["signal"] = end.signal;
  if (end.stopped) event["stopped"] = true;
  if (!end.stop_reason.empty()) event["stop_reason"] = end.stop_reason;
  if (end.test) {
    add_metrics(event, "test_", *end.test);
    add_metric_values(event, "test_", end.test_values);
    event["test_samples"] = end.test->samples;
  }
  event["resident_bytes"] = resident_bytes();
  if (best_) {
    event["best_epoch"] = best_->epoch;
    add_metrics(event, best_->is_validation ? "best_validation_" : "best_", best_->metrics);
  }
  write(std::move(event));
}

}  // namespace lockstep::inline v0::train
