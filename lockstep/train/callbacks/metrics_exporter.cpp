#include "lockstep/train/callbacks/metrics_exporter.h"

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <system_error>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file/atomic_file.h"
#include "lockstep/base/system/host.h"
#include "lockstep/base/text.h"
#include "lockstep/job/launch/task.h"
#include "lockstep/net/http_server.h"
#include "lockstep/train/callbacks/metric_text.h"

namespace lockstep::inline v0::train {
namespace {

constexpr std::array<std::string_view, 6> kStates = {"starting", "training", "validating",
                                                     "finished", "stopped",  "failed"};

/// Bucket bounds in seconds, about three per decade.
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
      values_(step_bounds()) {
  // Throws if no file can be created; a full disk does not end a training.
  if (!options_.file.empty()) {
    std::error_code unknown;
    if (std::filesystem::is_other(options_.file, unknown))
      throw Error(ErrorCategory::data, options_.file.string(),
                  "expected a path for a file that is replaced", "got a device or a FIFO");
    remove_abandoned_temporaries(options_.file.parent_path(), options_.file.filename().native());
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
  logger_->info(fmt::format("metrics for Prometheus are at http://{}/metrics", address.text()));
}

MetricsExporter::~MetricsExporter() = default;

std::uint16_t MetricsExporter::port() const { return server_ ? server_->port() : 0; }

void MetricsExporter::set_state(State state) {
  const std::lock_guard lock(mutex_);
  values_.state = state;
}

void MetricsExporter::on_train_begin(const TrainBegin& begin) {
  std::vector<Labels> replicas;
  for (const job::Placement& place : begin.placements)
    replicas.push_back({{"replica", std::to_string(place.replica)},
                        {"rank", std::to_string(place.rank)},
                        {"host", place.host},
                        {"device", place.device}});
  {
    const std::lock_guard lock(mutex_);
    values_.begin = std::make_shared<const TrainBegin>(begin);
    values_.busy.assign(replicas.size(), {});
    values_.replicas = std::make_shared<const std::vector<Labels>>(std::move(replicas));
    values_.step = begin.first_step;
    values_.learning_rate = begin.learning_rate;
    values_.state = State::training;
  }
  if (!options_.file.empty()) write_file();
}

void MetricsExporter::on_epoch_begin(std::int64_t epoch) {
  const std::lock_guard lock(mutex_);
  values_.epoch = epoch;
}

void MetricsExporter::on_batch_end(const StepLogs& logs) {
  {
    const std::lock_guard lock(mutex_);
    values_.step = logs.step;
    values_.epoch = logs.epoch;
    values_.samples += logs.samples;
    values_.step_timestamp = seconds_since_1970();
    values_.learning_rate = logs.learning_rate;
    if (!logs.skipped) values_.gradient_norm = logs.gradient_norm;
    values_.loss_scale = logs.loss_scale;
    if (logs.skipped) ++(logs.overflow ? values_.overflows : values_.skipped);
    values_.checkpoint_seconds = 0;
    // The first step of a run allocates memory and chooses algorithms.
    if (logs.step != values_.begin->first_step + 1) {
      values_.step_seconds.add(logs.breakdown.total());
      values_.seconds += logs.breakdown;
      for (std::size_t i = 0; i < std::min(values_.busy.size(), logs.busy.size()); ++i)
        values_.busy[i] += logs.busy[i];
    }
    if (!logs.skipped) {
      values_.metrics[{"step", "loss"}] = logs.metrics.loss();
      if (logs.metrics.has_accuracy())
        values_.metrics[{"step", "accuracy"}] = logs.metrics.accuracy();
    }
  }
  if (Clock::now() - written_ >= options_.file_interval) write_file();
}

void MetricsExporter::set_metrics(const EpochLogs& logs, bool with_training) {
  constexpr std::string_view kPrefix = "validation_";
  for (const std::string& name : values_.begin->known_metrics) {
    const bool is_validation = name.starts_with(kPrefix);
    if (!is_validation && !with_training) continue;
    const auto value = logs.metric(name);
    if (!value) continue;
    values_.metrics[is_validation ? std::pair<std::string, std::string>("validation",
                                                                        name.substr(kPrefix.size()))
                                  : std::pair<std::string, std::string>("epoch", name)] = *value;
  }
  values_.validation_seconds += logs.validation_seconds;
}

void MetricsExporter::on_epoch_end(const EpochLogs& logs) {
  {
    const std::lock_guard lock(mutex_);
    set_metrics(logs, true);
    std::int64_t bad = 0;
    for (const BadFile& file : logs.bad_files) bad += file.records;
    values_.bad_records = std::max(values_.bad_records, bad);  // the logs are cumulative
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
    ++values_.checkpoints;
    values_.checkpoint_step = logs.step;
    values_.checkpoint_timestamp = seconds_since_1970();
    values_.checkpoint_seconds += logs.seconds;
  }
  write_file();
}

void MetricsExporter::on_scalar(const ScalarLogs& logs) {
  const std::lock_guard lock(mutex_);
  values_.scalars[logs.name] = logs.value;
}

void MetricsExporter::on_train_end(const TrainEnd& end) {
  set_state(end.signal != 0 || end.stopped ? State::stopped
            : end.healthy                  ? State::finished
                                           : State::failed);
  write_file();
  if (values_.failed_writes > 0)
    logger_->warn(fmt::format(
        "the metrics could not be written to {} {}", options_.file.string(),
        values_.failed_writes == 1 ? "once" : fmt::format("{} times", values_.failed_writes)));
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
    if (values_.failed_writes++ == 0)
      logger_->warn(fmt::format(
          "{}; the training continues, and the metrics are written again later", error.what()));
  }
}

std::string MetricsExporter::text(Exposition format) const {
  const Values now = [this] {
    const std::lock_guard lock(mutex_);
    return values_;
  }();
  ExpositionWriter out(format);
  write_training(now, out);
  write_steps(now, out);
  write_replicas(now, out);
  write_checkpoints(now, out);
  write_process(now, out);
  return std::move(out).finish();
}

void MetricsExporter::write_training(const Values& now, ExpositionWriter& out) const {
  out.begin_gauge("target_info", "", "The process");
  out.add(1, {{"service_name", "lockstep"},
              {"host_name", host_name()},
              {"process_pid", std::to_string(::getpid())}});
  out.begin_gauge("lockstep_training_state", "", "1 for the state of the training, 0 for others");
  for (std::size_t i = 0; i < kStates.size(); ++i)
    out.add(i == static_cast<std::size_t>(now.state) ? 1 : 0, {{"state", std::string(kStates[i])}});
  if (now.state == State::starting) return;
  out.begin_gauge("lockstep_training_info", "", "What is trained");
  out.add(1, {{"run", options_.run},
              {"model", now.begin->model},
              {"data", now.begin->data},
              {"strategy", now.begin->strategy},
              {"allreduce", now.begin->allreduce},
              {"precision", now.begin->precision}});
  out.begin_gauge("lockstep_training_replicas", "", "Number of replicas");
  out.add(now.begin->world_size);
  out.begin_gauge("lockstep_training_ranks", "", "Number of ranks");
  out.add(now.begin->ranks);
  out.begin_gauge("lockstep_training_nodes", "", "Number of hosts");
  out.add(now.begin->nodes);
  out.begin_gauge("lockstep_training_parameters", "", "Number of parameters of the model");
  out.add(as_number(now.begin->parameters));
  out.begin_gauge("lockstep_training_global_batch", "", "Samples per step over all replicas");
  out.add(as_number(now.begin->global_batch));
}

void MetricsExporter::write_steps(const Values& now, ExpositionWriter& out) const {
  if (now.state == State::starting) return;
  out.begin_gauge("lockstep_training_step", "", "Completed steps, including those of earlier runs");
  out.add(as_number(now.step));
  out.begin_gauge("lockstep_training_step_limit", "", "Completed steps at the end of the training");
  out.add(as_number(now.begin->last_step));
  out.begin_gauge("lockstep_training_epoch", "", "Current epoch, from 0");
  out.add(as_number(now.epoch));
  out.begin_counter("lockstep_training_samples", "", "Samples of all replicas");
  out.add(as_number(now.samples));
  out.begin_counter("lockstep_training_skipped_steps", "",
                    "Steps without an update, because a loss or a gradient was not finite");
  out.add(as_number(now.skipped), {{"reason", "not_finite"}});
  out.add(as_number(now.overflows), {{"reason", "loss_scale"}});
  out.begin_counter("lockstep_training_bad_records", "", "Unreadable records that were replaced");
  out.add(as_number(now.bad_records));
  out.histogram("lockstep_training_step_duration_seconds", "seconds", "Duration of steps",
                now.step_seconds);
  out.begin_counter("lockstep_training_time_seconds", "seconds",
                    "Time of rank 0 by phase; waiting is for slower replicas, communication only "
                    "what computation does not hide");
  strategy::StepBreakdown seconds = now.seconds;
  seconds.checkpoint += now.checkpoint_seconds;
  for (const strategy::StepPart& part : strategy::kStepParts)
    out.add(seconds.*part.member, {{"phase", part.name}});
  out.add(now.validation_seconds, {{"phase", "validation"}});
  if (now.step_timestamp > 0) {
    out.begin_gauge("lockstep_training_step_timestamp_seconds", "seconds",
                    "End of the last step, since 1970");
    out.add(now.step_timestamp);
  }
  out.begin_gauge("lockstep_training_learning_rate", "", "Learning rate of the last step");
  out.add(shortest(now.learning_rate));
  if (now.gradient_norm > 0) {
    out.begin_gauge("lockstep_training_gradient_norm", "",
                    "Norm of the gradient of the last step before clipping");
    out.add(now.gradient_norm);
  }
  if (now.loss_scale) {
    out.begin_gauge("lockstep_training_loss_scale", "", "Scale of the loss in the last step");
    out.add(*now.loss_scale);
  }
  if (!now.metrics.empty())
    out.begin_gauge("lockstep_training_metric", "",
                    "Metric of the last step, of the last epoch or of the last validation");
  for (const auto& [key, value] : now.metrics)
    out.add(value, {{"scope", key.first}, {"metric", key.second}});
  if (!now.scalars.empty())
    out.begin_gauge("lockstep_training_scalar", "", "Value that a callback logged");
  for (const auto& [name, value] : now.scalars) out.add(value, {{"name", name}});
}

void MetricsExporter::write_replicas(const Values& now, ExpositionWriter& out) const {
  if (now.replicas->empty()) return;
  out.begin_counter("lockstep_replica_busy_time_seconds", "seconds",
                    "Time that a replica waited for its input, or computed, without waiting for "
                    "other replicas");
  for (std::size_t i = 0; i < now.replicas->size(); ++i)
    for (const auto& [phase, seconds] :
         {std::pair("input", now.busy[i].input), std::pair("compute", now.busy[i].compute)}) {
      Labels labels = (*now.replicas)[i];
      labels.emplace_back("phase", phase);
      out.add(seconds, labels);
    }
}

void MetricsExporter::write_checkpoints(const Values& now, ExpositionWriter& out) const {
  out.begin_counter("lockstep_checkpoint_saves", "", "Checkpoints of this run");
  out.add(as_number(now.checkpoints));
  if (now.checkpoints == 0) return;
  out.begin_gauge("lockstep_checkpoint_step", "", "Completed steps at the last checkpoint");
  out.add(as_number(now.checkpoint_step));
  out.begin_gauge("lockstep_checkpoint_timestamp_seconds", "seconds",
                  "Time of the last checkpoint, since 1970");
  out.add(now.checkpoint_timestamp);
}

/// Writes the process metrics of rank 0 with OpenTelemetry's names.
void MetricsExporter::write_process(const Values& now, ExpositionWriter& out) const {
  out.begin_gauge("process_memory_usage_bytes", "bytes", "Resident memory of rank 0");
  out.add(static_cast<double>(resident_bytes()));
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  out.begin_counter("process_cpu_time_seconds", "seconds", "Processor time of rank 0");
  out.add(seconds_of(usage.ru_utime), {{"cpu_mode", "user"}});
  out.add(seconds_of(usage.ru_stime), {{"cpu_mode", "system"}});
  if (options_.file.empty()) return;
  out.begin_counter("lockstep_metrics_failed_writes", "", "Failures to write the metrics file");
  out.add(as_number(now.failed_writes));
}

}  // namespace lockstep::inline v0::train
