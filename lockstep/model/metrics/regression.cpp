#include "lockstep/model/metrics/regression.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::inline v0::model {
namespace {

/// A CustomLoss may have labels, or values of another width.
void require_values(std::string_view metric, std::span<const float> outputs,
                    const Targets& targets) {
  if (targets.values.size() != outputs.size())
    throw Error(ErrorCategory::data, metric, "expected a target value for each output",
                fmt::format("got {} and {}, and {}", counted(std::ssize(targets.values), "value"),
                            counted(std::ssize(targets.labels), "label"),
                            counted(std::ssize(outputs), "output")));
}

class MeanError final : public Metric {
 public:
  explicit MeanError(ErrorKind kind) : kind_(kind) {}

  std::string name() const override {
    return kind_ == ErrorKind::absolute ? "mae" : kind_ == ErrorKind::squared ? "mse" : "rmse";
  }
  std::size_t sums() const override { return 2; }  // errors, values

  void add(std::span<const float> outputs, const Targets& targets, std::int64_t /*samples*/,
           std::vector<double>& sums) const override {
    require_values(name(), outputs, targets);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const double error = static_cast<double>(outputs[i]) - static_cast<double>(targets.values[i]);
      sums[0] += kind_ == ErrorKind::absolute ? std::abs(error) : error * error;
    }
    sums[1] += static_cast<double>(outputs.size());
  }
  std::vector<MetricValue> values(std::span<const double> sums) const override {
    const double mean = sums[1] > 0 ? sums[0] / sums[1] : std::numeric_limits<double>::quiet_NaN();
    return {{.name = name(), .values = {kind_ == ErrorKind::root ? std::sqrt(mean) : mean}}};
  }

 private:
  ErrorKind kind_;
};

/// Adds to a sum with its rounding error, sum[0] + sum[1] (Knuth's TwoSum), because two large sums
/// are subtracted.
void add_precisely(double* sum, double value) {
  const double total = sum[0] + value;
  const double added = total - sum[0];
  sum[1] += (sum[0] - (total - added)) + (value - added);
  sum[0] = total;
}

class R2 final : public Metric {
 public:
  explicit R2(std::int64_t width) : width_(static_cast<std::size_t>(width)) {}

  std::string name() const override { return "r2"; }
  // Samples; then for each output squared errors, targets and their squares, in two parts each.
  std::size_t sums() const override { return 1 + kSumsPerOutput * width_; }

  void add(std::span<const float> outputs, const Targets& targets, std::int64_t samples,
           std::vector<double>& sums) const override {
    require_values(name(), outputs, targets);
    sums[0] += static_cast<double>(samples);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      double* const output_sums = &sums[1 + kSumsPerOutput * (i % width_)];
      const auto target = static_cast<double>(targets.values[i]);
      const double error = static_cast<double>(outputs[i]) - target;
      output_sums[0] += error * error;
      add_precisely(output_sums + 1, target);
      add_precisely(output_sums + 3, target * target);  // exact: a product of two floats
    }
  }
  std::vector<MetricValue> values(std::span<const double> sums) const override {
    double total = 0;
    for (std::size_t output = 0; output < width_; ++output)
      total += value_of(sums[0], sums.subspan(1 + kSumsPerOutput * output, kSumsPerOutput));
    return {{.name = name(), .values = {total / static_cast<double>(width_)}}};
  }

 private:
  static constexpr std::size_t kSumsPerOutput = 5;

  static double value_of(double samples, std::span<const double> sums) {
    if (samples == 0) return std::numeric_limits<double>::quiet_NaN();
    const double mean = (sums[1] + sums[2]) / samples;
    // sum of y^2 - n mean^2, whose parts may be much larger than their difference
    const double squares = std::fma(-samples * mean, mean, sums[3]) + sums[4];
    constexpr double kRounding = 64 * std::numeric_limits<double>::epsilon();
    if (squares > kRounding * sums[3]) return 1 - sums[0] / squares;
    return sums[0] == 0 ? 1 : 0;
  }

  std::size_t width_;
};

}  // namespace

std::shared_ptr<const Metric> make_error_metric(ErrorKind kind) {
  return std::make_shared<MeanError>(kind);
}

std::shared_ptr<const Metric> make_r2(std::int64_t width) { return std::make_shared<R2>(width); }

}  // namespace lockstep::inline v0::model
