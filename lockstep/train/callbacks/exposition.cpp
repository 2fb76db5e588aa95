#include "lockstep/train/callbacks/exposition.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/text.h"

namespace lockstep::inline v0::train {
namespace {

/// "3", "0.25", "NaN", "+Inf".
std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

/// "1.0", "0.5": OpenMetrics requires integers with a decimal point as bounds.
std::string bound_text(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string escaped_label(std::string_view value) {
  std::string text;
  for (const char c : encode_bytes(value)) {
    if (c == '\n') {
      text += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  return text;
}

}  // namespace

void Histogram::add(double value) {
  const auto interval = std::ranges::lower_bound(bounds_, value);
  ++counts_[static_cast<std::size_t>(interval - bounds_.begin())];
  sum_ += value;
}

std::string_view media_type(Exposition format) {
  return format == Exposition::prometheus
             ? "text/plain; version=0.0.4; charset=utf-8"
             : "application/openmetrics-text; version=1.0.0; charset=utf-8";
}

void ExpositionWriter::begin(std::string_view name, std::string_view type, std::string_view unit,
                             std::string_view help) {
  text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  if (format_ == Exposition::open_metrics && !unit.empty())
    text_ += fmt::format("# UNIT {} {}\n", name, unit);
}

void ExpositionWriter::begin_counter(std::string_view name, std::string_view unit,
                                     std::string_view help) {
  sample_ = fmt::format("{}_total", name);
  begin(format_ == Exposition::open_metrics ? name : sample_, "counter", unit, help);
}

void ExpositionWriter::begin_gauge(std::string_view name, std::string_view unit,
                                   std::string_view help) {
  sample_ = name;
  begin(name, "gauge", unit, help);
}

void ExpositionWriter::add(double value, const Labels& labels) {
  text_ += sample_;
  char before = '{';
  for (const auto& [name, content] : labels) {
    text_ += fmt::format("{}{}=\"{}\"", before, name, escaped_label(content));
    before = ',';
  }
  if (!labels.empty()) text_ += '}';
  text_ += fmt::format(" {}\n", number_text(value));
}

void ExpositionWriter::histogram(std::string_view name, std::string_view unit,
                                 std::string_view help, const Histogram& values) {
  begin(name, "histogram", unit, help);
  std::int64_t count = 0;
  sample_ = fmt::format("{}_bucket", name);
  for (std::size_t i = 0; i < values.counts().size(); ++i) {
    count += values.counts()[i];
    const bool is_last = i == values.bounds().size();
    add(static_cast<double>(count), {{"le", is_last ? "+Inf" : bound_text(values.bounds()[i])}});
  }
  text_ += fmt::format("{}_sum {}\n{}_count {}\n", name, number_text(values.sum()), name, count);
}

std::string ExpositionWriter::finish() && {
  if (format_ == Exposition::open_metrics) text_ += "# EOF\n";
  return std::move(text_);
}

}  // namespace lockstep::inline v0::train
