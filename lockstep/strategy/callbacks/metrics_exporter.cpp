#include "lockstep/strategy/callbacks/metrics_exporter.h"

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "lockstep/base/atomic_file.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/system/host.h"
#include "lockstep/base/text.h"
#include "lockstep/job/task.h"
#include "lockstep/net/http_server.h"

namespace lockstep::strategy {
namespace {

constexpr std::array<std::string_view, 6> kStates = {"starting", "training", "validating",
                                                     "finished", "stopped",  "failed"};

/// Seconds, about three per decade.
std::vector<double> step_bounds() {
  return {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
          0.1,    0.25,    0.5,    1,     2.5,    5,     10,   30,    60};
}

std::unique_ptr<net::HttpServer> serve(const MetricsAddress& address,
                                       net::HttpServer::Handler handler) {
  try {
    return std::make_unique<net::HttpServer>(address.host, address.port, std::move(handler));
  } catch (const Error& error) {
    throw Error(ErrorCategory::input, "metrics-port",
                "expected an address of this host and a free TCP port for metrics (0: any free "
                "one)",
                fmt::format("got {}: {}", address.text(), error.message().actual));
  }
}

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

double as_number(std::int64_t count) { return static_cast<double>(count); }

}  // namespace

std::string MetricsAddress::text() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

MetricsAddress parse_metrics_address(const std::string& text) {
  if (const auto port = parse_number<std::uint16_t>(text)) return {.port = *port};
  const bool has_port = text.find(':') != std::string::npos && !text.ends_with(']');
  if (!has_port)
    throw Error(ErrorCategory::input, "metrics-port",
                "expected a port from 0 to 65535, or an address such as 0.0.0.0:9400",
                fmt::format("got \"{}\"", text));
  const job::Endpoint point = job::parse_address("metrics-port", text);
  return {.host = point.host == "localhost" ? "127.0.0.1" : point.host, .port = point.port};
}

MetricsExporter::MetricsExporter(MetricsExporterOptions options, std::shared_ptr<Logger> logger)
    : options_(std::move(options)),
      logger_(logger ? std::move(logger) : make_logger()),
      step_seconds_(step_bounds()) {
  // Throws where no file can be created; a full disk is not the end of a training.
  if (!options_.file.empty()) {
    const AtomicFile probe(options_.file, Durability::cached);
  }
  if (!options_.address) return;
  server_ = serve(*options_.address, [this](std::string_view path) {
    std::optional<net::HttpText> found;
    if (path == "/metrics")
      found = {.type = std::string(media_type(Exposition::prometheus)),
               .body = text(Exposition::prometheus)};
    return found;
  });
  MetricsAddress address = *options_.address;
  address.port = server_->port();
  logger_->info("metrics for Prometheus are at http://{}/metrics", address.text());
}

MetricsExporter::~MetricsExporter() = default;

std::uint16_t MetricsExporter::port() const { return server_ ? server_->port() : 0; }

void MetricsExporter::set_state(State state) {
  const std::lock_guard lock(mutex_);
  state_ = state;
}

void MetricsExporter::on_train_begin(const TrainBegin& begin) {
  {
    const std::lock_guard lock(mutex_);
    begin_ = begin;
    replicas_.clear();
    for (const job::Placement& place : begin.placements)
      replicas_.push_back({{"replica", std::to_string(place.replica)},
                           {"rank", std::to_string(place.rank)},
                           {"host", place.host},
                           {"device", place.device}});
    busy_.assign(replicas_.size(), {});
    step_ = begin.first_step;
    learning_rate_ = begin.learning_rate;
    state_ = State::training;
  }
  if (!options_.file.empty()) write_file();
}

void MetricsExporter::on_epoch_begin(std::int64_t epoch) {
  const std::lock_guard lock(mutex_);
  epoch_ = epoch;
}

void MetricsExporter::on_batch_end(const StepLogs& logs) {
  {
    const std::lock_guard lock(mutex_);
    step_ = logs.step;
    epoch_ = logs.epoch;
    samples_ += logs.samples;
    step_timestamp_ = seconds_since_1970();
    learning_rate_ = logs.learning_rate;
    if (!logs.skipped) gradient_norm_ = logs.gradient_norm;
    loss_scale_ = logs.loss_scale;
    if (logs.skipped) ++(logs.overflow ? overflows_ : skipped_);
    step_seconds_.add(logs.breakdown.total());
    seconds_ += logs.breakdown;
    for (std::size_t i = 0; i < std::min(busy_.size(), logs.busy.size()); ++i) {
      busy_[i].input += logs.busy[i].input;
      busy_[i].compute += logs.busy[i].compute;
    }
    if (!logs.skipped) {
      metrics_[{"step", "loss"}] = logs.metrics.loss();
      if (logs.metrics.has_accuracy) metrics_[{"step", "accuracy"}] = logs.metrics.accuracy();
    }
  }
  if (Clock::now() - written_ >= options_.file_interval) write_file();
}

void MetricsExporter::set_metrics(const EpochLogs& logs, bool with_training) {
  constexpr std::string_view kPrefix = "validation_";
  for (const std::string& name : begin_.known_metrics) {
    const bool is_validation = name.starts_with(kPrefix);
    if (!is_validation && !with_training) continue;
    const auto value = logs.metric(name);
    if (!value) continue;
    metrics_[is_validation
                 ? std::pair<std::string, std::string>("validation", name.substr(kPrefix.size()))
                 : std::pair<std::string, std::string>("epoch", name)] = *value;
  }
  validation_seconds_ += logs.validation_seconds;
}

void MetricsExporter::on_epoch_end(const EpochLogs& logs) {
  {
    const std::lock_guard lock(mutex_);
    set_metrics(logs, true);
    std::int64_t bad = 0;
    for (const BadFile& file : logs.bad_files) bad += file.records;
    bad_records_ = std::max(bad_records_, bad);  // the logs have all of this run
  }
  write_file();
}

void MetricsExporter::on_validation(const EpochLogs& logs) {
  {
    const std::lock_guard lock(mutex_);
    set_metrics(logs, false);
  }
  write_file();
}

void MetricsExporter::on_test_begin() { set_state(State::validating); }

void MetricsExporter::on_test_end(const model::MetricSums& /*sums*/) { set_state(State::training); }

void MetricsExporter::on_checkpoint(const CheckpointLogs& logs) {
  {
    const std::lock_guard lock(mutex_);
    ++checkpoints_;
    checkpoint_step_ = logs.step;
    checkpoint_timestamp_ = seconds_since_1970();
  }
  write_file();
}

void MetricsExporter::on_scalar(const ScalarLogs& logs) {
  const std::lock_guard lock(mutex_);
  scalars_[logs.name] = logs.value;
}

void MetricsExporter::on_train_end(const TrainEnd& end) {
  set_state(end.signal != 0 || end.stopped ? State::stopped
            : end.healthy                  ? State::finished
                                           : State::failed);
  write_file();
  if (failed_writes_ > 0)
    logger_->warn("the metrics could not be written to {} {}", options_.file.string(),
                  failed_writes_ == 1 ? "once" : fmt::format("{} times", failed_writes_));
}

void MetricsExporter::on_exception(const std::exception& /*error*/) {
  set_state(State::failed);
  write_file();
}

void MetricsExporter::write_file() {
  if (options_.file.empty()) return;
  written_ = Clock::now();
  try {
    write_file_atomically(options_.file, text(Exposition::open_metrics), Durability::cached);
  } catch (const Error& error) {
    const std::lock_guard lock(mutex_);
    if (failed_writes_++ == 0)
      logger_->warn("{}; the training continues, and the metrics are written again later",
                    error.what());
  }
}

std::string MetricsExporter::text(Exposition format) const {
  ExpositionWriter out(format);
  const std::lock_guard lock(mutex_);
  write_training(out);
  write_steps(out);
  write_replicas(out);
  write_checkpoints(out);
  write_process(out);
  return std::move(out).finish();
}

void MetricsExporter::write_training(ExpositionWriter& out) const {
  out.begin_gauge("target_info", "", "The process");
  out.add(1, {{"service_name", "lockstep"},
              {"host_name", host_name()},
              {"process_pid", std::to_string(::getpid())}});
  out.begin_gauge("lockstep_training_state", "", "1 for the state of the training, 0 for others");
  for (std::size_t i = 0; i < kStates.size(); ++i)
    out.add(i == static_cast<std::size_t>(state_) ? 1 : 0, {{"state", std::string(kStates[i])}});
  if (state_ == State::starting) return;
  out.begin_gauge("lockstep_training_info", "", "What is trained");
  out.add(1, {{"run", options_.run},
              {"model", begin_.model},
              {"data", begin_.data},
              {"strategy", begin_.strategy},
              {"allreduce", begin_.allreduce},
              {"precision", begin_.precision}});
  out.begin_gauge("lockstep_training_replicas", "", "Number of replicas");
  out.add(begin_.world_size);
  out.begin_gauge("lockstep_training_ranks", "", "Number of ranks");
  out.add(begin_.ranks);
  out.begin_gauge("lockstep_training_nodes", "", "Number of hosts");
  out.add(begin_.nodes);
  out.begin_gauge("lockstep_training_parameters", "", "Number of parameters of the model");
  out.add(as_number(begin_.parameters));
  out.begin_gauge("lockstep_training_global_batch", "", "Samples per step over all replicas");
  out.add(as_number(begin_.global_batch));
}

void MetricsExporter::write_steps(ExpositionWriter& out) const {
  if (state_ == State::starting) return;
  out.begin_gauge("lockstep_training_step", "", "Completed steps, including those of earlier runs");
  out.add(as_number(step_));
  out.begin_gauge("lockstep_training_step_limit", "", "Completed steps at the end of the training");
  out.add(as_number(begin_.last_step));
  out.begin_gauge("lockstep_training_epoch", "", "Current epoch, from 0");
  out.add(as_number(epoch_));
  out.begin_counter("lockstep_training_samples", "", "Samples of all replicas");
  out.add(as_number(samples_));
  out.begin_counter("lockstep_training_skipped_steps", "",
                    "Steps without an update, because a loss or a gradient was not finite");
  out.add(as_number(skipped_), {{"reason", "not_finite"}});
  out.add(as_number(overflows_), {{"reason", "loss_scale"}});
  out.begin_counter("lockstep_training_bad_records", "", "Unreadable records that were replaced");
  out.add(as_number(bad_records_));
  out.histogram("lockstep_training_step_duration_seconds", "seconds", "Duration of steps",
                step_seconds_);
  out.begin_counter("lockstep_training_time_seconds", "seconds",
                    "Time of rank 0 by phase; waiting is for slower replicas, communication only "
                    "what computation does not hide");
  for (const StepPart& part : kStepParts) out.add(seconds_.*part.member, {{"phase", part.name}});
  out.add(validation_seconds_, {{"phase", "validation"}});
  if (step_timestamp_ > 0) {
    out.begin_gauge("lockstep_training_step_timestamp_seconds", "seconds",
                    "End of the last step, since 1970");
    out.add(step_timestamp_);
  }
  out.begin_gauge("lockstep_training_learning_rate", "", "Learning rate of the last step");
  out.add(parse_number<double>(fmt::format("{}", learning_rate_)).value_or(learning_rate_));
  if (gradient_norm_ > 0) {
    out.begin_gauge("lockstep_training_gradient_norm", "",
                    "Norm of the gradient of the last step before clipping");
    out.add(gradient_norm_);
  }
  if (loss_scale_) {
    out.begin_gauge("lockstep_training_loss_scale", "", "Scale of the loss in the last step");
    out.add(*loss_scale_);
  }
  if (!metrics_.empty())
    out.begin_gauge("lockstep_training_metric", "",
                    "Metric of the last step, of the last epoch or of the last validation");
  for (const auto& [key, value] : metrics_)
    out.add(value, {{"scope", key.first}, {"metric", key.second}});
  if (!scalars_.empty())
    out.begin_gauge("lockstep_training_scalar", "", "Value that a callback logged");
  for (const auto& [name, value] : scalars_) out.add(value, {{"name", name}});
}

void MetricsExporter::write_replicas(ExpositionWriter& out) const {
  if (replicas_.empty()) return;
  out.begin_counter("lockstep_replica_busy_time_seconds", "seconds",
                    "Time that a replica waited for its input, or computed, without waiting for "
                    "other replicas");
  for (std::size_t i = 0; i < replicas_.size(); ++i)
    for (const auto& [phase, seconds] :
         {std::pair("input", busy_[i].input), std::pair("compute", busy_[i].compute)}) {
      Labels labels = replicas_[i];
      labels.emplace_back("phase", phase);
      out.add(seconds, labels);
    }
}

void MetricsExporter::write_checkpoints(ExpositionWriter& out) const {
  out.begin_counter("lockstep_checkpoint_saves", "", "Checkpoints of this run");
  out.add(as_number(checkpoints_));
  if (checkpoints_ == 0) return;
  out.begin_gauge("lockstep_checkpoint_step", "", "Completed steps at the last checkpoint");
  out.add(as_number(checkpoint_step_));
  out.begin_gauge("lockstep_checkpoint_timestamp_seconds", "seconds",
                  "Time of the last checkpoint, since 1970");
  out.add(checkpoint_timestamp_);
}

/// The names of OpenTelemetry for processes; those of rank 0.
void MetricsExporter::write_process(ExpositionWriter& out) const {
  out.begin_gauge("process_memory_usage_bytes", "bytes", "Resident memory of rank 0");
  out.add(static_cast<double>(resident_bytes()));
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  out.begin_counter("process_cpu_time_seconds", "seconds", "Processor time of rank 0");
  out.add(seconds_of(usage.ru_utime), {{"cpu_mode", "user"}});
  out.add(seconds_of(usage.ru_stime), {{"cpu_mode", "system"}});
  if (options_.file.empty()) return;
  out.begin_counter("lockstep_metrics_failed_writes", "", "Failures to write the metrics file");
  out.add(as_number(failed_writes_));
}

}  // namespace lockstep::strategy
