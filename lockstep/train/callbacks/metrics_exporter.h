// Metrics of a training for monitoring systems, such as Prometheus.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/log.h"
#include "lockstep/strategy/replica/step_breakdown.h"
#include "lockstep/train/callbacks/callback.h"
#include "lockstep/train/callbacks/exposition.h"

namespace lockstep::inline v0::net {
class HttpServer;
}  // namespace lockstep::inline v0::net

namespace lockstep::inline v0::train {

/// Where an HTTP server listens.
struct MetricsAddress {
  std::string host = "127.0.0.1";  ///< numeric address
  std::uint16_t port = 0;          ///< 0: chosen by the system

  std::string text() const;  ///< "127.0.0.1:9400", "[::1]:9400"
};

/// Parses "9400" (on 127.0.0.1), "0.0.0.0:9400" or "[::1]:9400". Throws Error (input).
MetricsAddress parse_metrics_address(const std::string& text);

/// Options of MetricsExporter.
struct MetricsExporterOptions {
  std::optional<MetricsAddress> address = {};  ///< address of the HTTP server; nullopt: no server
  std::filesystem::path file = {};             ///< file for the metrics; empty: no file
  /// Minimum time between updates of the file during steps.
  std::chrono::milliseconds file_interval{5000};
  std::string run = {};  ///< name of the training in the label `run`; may be empty
};

/// Serves the metrics of a training as Prometheus text at http://ADDRESS/metrics, and writes them
/// to a file as OpenMetrics text. docs/observe.md lists them; their names follow the conventions of
/// OpenTelemetry. Counters and times cover this run; times of steps exclude its first step. Use
/// only on the chief, which has the busy times of all replicas, after the callbacks that log
/// scalars.
///
/// The file is replaced atomically: at the beginning and at the end (also by an exception), after
/// each epoch, validation and checkpoint, and between steps at most once per interval. A write
/// error, such as a full disk, does not end the training: the first one is logged as a warning. The
/// number of errors is in the metrics and in a warning at the end.
class MetricsExporter final : public Callback {
 public:
  /// Starts the server and logs its address. `logger`: also receives the warnings; null for
  /// standard error. Throws Error (input) if the address cannot be used, Error (data) if the file
  /// cannot be created.
  explicit MetricsExporter(MetricsExporterOptions options,
                           std::shared_ptr<Logger> logger = nullptr);
  ~MetricsExporter() override;

  std::uint16_t port() const;  ///< port of the server; 0 without one

  /// The current metrics. Thread-safe.
  std::string text(Exposition format) const;

  void on_train_begin(const TrainBegin& begin) override;
  void on_train_end(const TrainEnd& end) override;           ///< sets the final state
  void on_epoch_begin(std::int64_t epoch) override;          ///< sets the epoch
  void on_epoch_end(const EpochLogs& logs) override;         ///< sets the metrics of the epoch
  void on_batch_end(const StepLogs& logs) override;          ///< adds the step
  void on_test_begin() override;                             ///< sets the state
  void on_test_end(const model::MetricSums& sums) override;  ///< sets the state
  void on_validation(const EpochLogs& logs) override;        ///< sets the metrics of the validation
  void on_checkpoint(const CheckpointLogs& logs) override;   ///< adds the checkpoint
  void on_scalar(const ScalarLogs& logs) override;           ///< sets the scalar
  void on_exception(const std::exception& error) override;   ///< sets the final state
  bool may_stop_at_batches() const override { return false; }

 private:
  using Clock = std::chrono::steady_clock;
  enum class State : std::uint8_t { starting, training, validating, finished, stopped, failed };

  /// The current values. A reader copies them, so that no step waits for the formatting.
  struct Values {
    explicit Values(std::vector<double> step_bounds) : step_seconds(std::move(step_bounds)) {}

    State state = State::starting;
    std::shared_ptr<const TrainBegin> begin = std::make_shared<const TrainBegin>();
    std::shared_ptr<const std::vector<Labels>> replicas =
        std::make_shared<const std::vector<Labels>>();
    std::int64_t step = 0;
    std::int64_t epoch = 0;
    std::int64_t samples = 0;
    std::int64_t skipped = 0;    // steps, without overflows
    std::int64_t overflows = 0;  // skipped steps
    std::int64_t bad_records = 0;
    double step_timestamp = 0;  // seconds since 1970; 0: no step yet
    float learning_rate = 0;
    double gradient_norm = 0;
    std::optional<float> loss_scale;
    Histogram step_seconds;
    strategy::StepBreakdown seconds;  // sums over the steps of this run except the first
    double checkpoint_seconds = 0;    // since the last step; not yet in `seconds`
    double validation_seconds = 0;
    std::vector<allreduce::BusySeconds> busy;
    // Keys: scope ("step", "epoch" or "validation") and name.
    std::map<std::pair<std::string, std::string>, double, std::less<>> metrics;
    std::map<std::string, double, std::less<>> scalars;
    std::int64_t checkpoints = 0;
    std::int64_t checkpoint_step = 0;
    double checkpoint_timestamp = 0;
    std::int64_t failed_writes = 0;
  };

  void set_state(State state);
  void set_metrics(const EpochLogs& logs, bool with_training);
  void write_training(const Values& now, ExpositionWriter& out) const;
  void write_steps(const Values& now, ExpositionWriter& out) const;
  void write_replicas(const Values& now, ExpositionWriter& out) const;
  void write_checkpoints(const Values& now, ExpositionWriter& out) const;
  void write_process(const Values& now, ExpositionWriter& out) const;
  void write_file();

  const MetricsExporterOptions options_;
  std::shared_ptr<Logger> logger_;
  Clock::time_point written_;  // time of the last write of the file

  mutable std::mutex mutex_;  // protects values_, which the server reads
  Values values_;

  std::unique_ptr<net::HttpServer> server_;  // last member: its thread uses the others
};

}  // namespace lockstep::inline v0::train
