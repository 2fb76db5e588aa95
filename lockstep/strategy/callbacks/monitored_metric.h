// A metric that a decision of a training depends on, and options that begin with one.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {
class Spec;
}  // namespace lockstep

namespace lockstep::strategy {

struct EpochLogs;

/// The names of metrics in JSON events, those of the validation with the prefix "validation_".
/// `further`: beside loss, accuracy and top5_accuracy.
std::vector<std::string> metric_names(bool has_accuracy, bool has_validation,
                                      const std::vector<std::string>& further = {});

/// Which values of a metric are better.
enum class Direction { min, max };

/// A metric by its name in JSON events, such as "validation_loss".
struct MonitoredMetric {
  std::string name = {};  ///< as in JSON events
  /// nullopt: the known one. Loss, mae, mse, rmse and perplexity are minimized; accuracy, top5 and
  /// the like, auc, auc_pr, f1, precision, recall and r2 are maximized.
  std::optional<Direction> direction = {};

  /// Throws Error (input) with `where` unless `names` (metric_names()) has the name, and if the
  /// direction is neither given nor known.
  void check(std::string_view where, std::span<const std::string> names) const;
  /// Whether `value` is better than `best` by more than `min_delta`; the first finite value is. Not
  /// if there is no value, or NaN. After check().
  bool improves(std::optional<double> value, std::optional<double> best,
                double min_delta = 0) const;
  bool is_of_validation() const;  ///< whether its name begins with "validation_"
  std::string text() const;       ///< "validation_loss", or "score:max"

  bool operator==(const MonitoredMetric&) const = default;
};

/// Follows a metric through a training: its best value, and when that was.
///
/// A value counts if it is of a whole epoch or of a validation. The training metrics of an epoch
/// that ended early are of fewer samples, and an epoch that was resumed may lack some
/// (EpochLogs::values): those do not count.
class MetricMonitor {
 public:
  /// `min_delta`: a smaller change is no improvement.
  explicit MetricMonitor(MonitoredMetric metric, double min_delta = 0);

  /// Forgets the best value. Throws Error (input) as MonitoredMetric::check().
  void begin(std::string_view where, std::span<const std::string> names);
  /// Whether the value in `logs` is better than the best one, which it then becomes; nullopt if
  /// `logs` have no value that counts. A value that is not finite counts, and is never better.
  std::optional<bool> observe(const EpochLogs& logs);

  const MonitoredMetric& metric() const { return metric_; }    ///< that it follows
  const std::optional<double>& best() const { return best_; }  ///< best value so far
  std::int64_t best_step() const { return best_step_; }        ///< completed steps at that time
  /// Replaces the best value; nullopt for none.
  void set_best(std::optional<double> best, std::int64_t step);

  void save(nlohmann::json& state) const;     ///< adds "best" and "best_step", if there is a best
  void restore(const nlohmann::json& state);  ///< reads what save() has added
  static void remove(nlohmann::json& state);  ///< removes that

 private:
  MonitoredMetric metric_;
  double min_delta_;
  std::optional<double> best_;
  std::int64_t best_step_ = 0;
};

/// Reads the metric and its direction of "METRIC:max,key=value". Throws Error (input).
MonitoredMetric read_monitored(Spec& spec);
/// Parses METRIC, METRIC:max or METRIC:min, the value of `option`. Throws Error (input).
MonitoredMetric parse_monitored(std::string_view option, std::string_view text);
/// Parses METRIC[:max|:min], the value of `--keep-best`. Throws Error (input).
MonitoredMetric parse_keep_best(std::string_view text);

}  // namespace lockstep::strategy
