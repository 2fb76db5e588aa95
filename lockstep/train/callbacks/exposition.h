// Metrics as text for Prometheus and compatible systems.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::inline v0::train {

/// Names and values of labels. Values are arbitrary bytes; those that are not UTF-8 are encoded by
/// encode_bytes().
using Labels = std::vector<std::pair<std::string, std::string>>;

/// Counts of values by interval.
class Histogram {
 public:
  /// `bounds`: the inclusive upper bounds of the intervals, ascending; values above the last one
  /// are counted too.
  explicit Histogram(std::vector<double> bounds)
      : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

  void add(double value);  ///< counts a value

  const std::vector<double>& bounds() const { return bounds_; }  ///< inclusive upper bounds
  /// Counts per interval; the last one counts values above the last bound.
  const std::vector<std::int64_t>& counts() const { return counts_; }
  double sum() const { return sum_; }  ///< sum of all values

 private:
  std::vector<double> bounds_;
  std::vector<std::int64_t> counts_;
  double sum_ = 0;
};

/// The text formats: Prometheus 0.0.4, and OpenMetrics 1.0.
enum class Exposition : std::uint8_t { prometheus, open_metrics };

/// The media type of a format, for HTTP.
std::string_view media_type(Exposition format);

/// Writes metrics in one of the formats. The OpenMetrics text has only types that readers of the
/// older format know, such as the textfile collector of Prometheus' node_exporter.
class ExpositionWriter {
 public:
  /// An empty text.
  explicit ExpositionWriter(Exposition format) : format_(format) {}

  /// A value that only grows. `name` ends with the plural of `unit`, if there is one, and without
  /// "_total", which is appended. `help`: a sentence without line breaks, quotes and backslashes.
  void begin_counter(std::string_view name, std::string_view unit, std::string_view help);
  /// A value that can fall.
  void begin_gauge(std::string_view name, std::string_view unit, std::string_view help);
  /// A sample of the metric that was begun last.
  void add(double value, const Labels& labels = {});
  /// A metric with a single sample.
  void histogram(std::string_view name, std::string_view unit, std::string_view help,
                 const Histogram& values);

  /// The text. Nothing can be added afterwards.
  std::string finish() &&;

 private:
  void begin(std::string_view name, std::string_view type, std::string_view unit,
             std::string_view help);

  Exposition format_;
  std::string sample_;  // name of the samples of the current metric
  std::string text_;
};

}  // namespace lockstep::inline v0::train
