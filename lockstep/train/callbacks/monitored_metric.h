// Metrics that decisions of a training depend on, and options that begin with one.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::inline v0 {
class Spec;
}  // namespace lockstep::inline v0

namespace lockstep::inline v0::train {

struct EpochLogs;

/// Returns the names of metrics in JSON events for a loss with `classes` (0: of values); those of
/// the validation have the prefix "validation_". `further`: names in addition to loss, accuracy
/// and, with more than 5 classes, top5_accuracy.
std::vector<std::string> metric_names(std::int64_t classes, bool has_validation,
                                      const std::vector<std::string>& further = {});

/// Which values of a metric are better.
enum class Direction { min, max };

/// A metric by its name in JSON events, such as "validation_loss".
struct MonitoredMetric {
  std::string name = {};  ///< name in JSON events
  /// nullopt: the default. Loss, mae, mse, rmse and perplexity are minimized; accuracies, auc,
  /// auc_pr, f1, precision, recall and r2 are maximized.
  std::optional<Direction> direction = {};

  /// Throws Error (input) with `where` unless `names` (metric_names()) contains the name, and if
  /// the direction is not set and has no default.
  void check(std::string_view where, std::span<const std::string> names) const;
  /// Whether `value` is better than `best` by more than `min_delta`. True for a finite value
  /// without `best`; false for nullopt and NaN. Requires check().
  bool improves(std::optional<double> value, std::optional<double> best,
                double min_delta = 0) const;
  bool is_of_validation() const;  ///< whether its name begins with "validation_"
  std::string text() const;       ///< "validation_loss", or "score:max"

  bool operator==(const MonitoredMetric&) const = default;
};

/// Tracks the best value of a metric during a training, and its step.
///
/// Values of whole epochs and of validations count. Training metrics of an epoch that ended early
/// cover fewer samples, and an epoch that was resumed may lack some (EpochLogs::values); they do
/// not count.
class MetricMonitor {
 public:
  /// `min_delta`: a smaller change is no improvement.
  explicit MetricMonitor(MonitoredMetric metric, double min_delta = 0);

  /// Resets the best value. Throws Error (input) as MonitoredMetric::check().
  void begin(std::string_view where, std::span<const std::string> names);
  /// Updates the best value. Returns whether the value in `logs` is better; nullopt if `logs`
  /// contain no value that counts. A value that is not finite counts, and is never better.
  std::optional<bool> observe(const EpochLogs& logs);

  const MonitoredMetric& metric() const { return metric_; }    ///< the tracked metric
  const std::optional<double>& best() const { return best_; }  ///< best value so far
  std::int64_t best_step() const { return best_step_; }  ///< completed steps at the best value
  /// Replaces the best value; nullopt for none.
  void set_best(std::optional<double> best, std::int64_t step);

  void save(nlohmann::json& state) const;     ///< adds "best" and "best_step", if there is a best
  void restore(const nlohmann::json& state);  ///< reads the members of save()
  static void remove(nlohmann::json& state);  ///< removes the members of save()

 private:
  MonitoredMetric metric_;
  double min_delta_;
  std::optional<double> best_;
  std::int64_t best_step_ = 0;
};

/// Reads the metric and its direction from "METRIC:max,key=value". Throws Error (input).
MonitoredMetric read_monitored(Spec& spec);
/// Parses METRIC, METRIC:max or METRIC:min, the value of `option`. Throws Error (input).
MonitoredMetric parse_monitored(std::string_view option, std::string_view text);
/// Parses METRIC[:max|:min], the value of `--keep-best`. Throws Error (input).
MonitoredMetric parse_keep_best(std::string_view text);

}  // namespace lockstep::inline v0::train
