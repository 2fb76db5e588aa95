#include "apps/lockstep/report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/lockstep/report/text.h"
#include "lockstep/base/json/json.h"

namespace lockstep::inline v0::apps::report {
namespace {

// Dimensions of the drawing; one unit is about a pixel.
constexpr double kTotalWidth = 560;
constexpr double kTotalHeight = 250;
constexpr double kLeft = 54;
constexpr double kRight = 12;
constexpr double kTop = 10;
constexpr double kBottom = 40;
constexpr double kInnerWidth = kTotalWidth - kLeft - kRight;
constexpr double kInnerHeight = kTotalHeight - kTop - kBottom;
/// The bands of more curves would hide each other.
constexpr std::size_t kMaxBands = 3;
/// The axis of values is logarithmic if they span a larger factor.
constexpr double kLogarithmic = 200;

int color_of(int color) { return color <= kGray ? color : (color - kGray - 1) % kColors; }
bool is_dashed(int color) { return color > kGray; }

/// Multiples of 1, 2 or 5 times a power of ten within [low, high], about `count`.
std::vector<double> ticks(double low, double high, double count, double least_step = 0) {
  const double raw = std::max((high - low) / count, least_step);
  const double power = std::pow(10, std::floor(std::log10(raw)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0})
    if (factor * power >= raw * (1 - 1e-9)) step = factor * power;
  std::vector<double> values;
  const double first = std::ceil(low / step - 1e-9);
  constexpr int kMaxTicks = 40;  // also where i and i + 1 are the same double
  for (int n = 0; n < kMaxTicks && (first + n) * step <= high + 1e-9 * step; ++n)
    values.push_back((first + n) * step + 0.0);  // not -0
  return values;
}

/// Powers of ten in [low, high], thinned out if there are many.
std::vector<double> logarithmic_ticks(double low, double high) {
  const int first = static_cast<int>(std::floor(std::log10(low)));
  const int last = static_cast<int>(std::ceil(std::log10(high)));
  const int every = std::max(1, (last - first) / 6);
  std::vector<double> values;
  for (int i = first; i <= last; i += every)
    if (const double value = std::pow(10, i); value >= low * 0.999 && value <= high * 1.001)
      values.push_back(value);
  return values;
}

/// Maps values to the drawing.
class Scale {
 public:
  Scale(double low, double high, double from, double to, bool is_logarithmic = false)
      : is_logarithmic_(is_logarithmic),
        low_(is_logarithmic ? std::log10(low) : low),
        high_(is_logarithmic ? std::log10(high) : high),
        from_(from),
        to_(to) {}
  double operator()(double value) const {
    const double at = is_logarithmic_ ? std::log10(std::max(value, 1e-300)) : value;
    // Points beyond the edge are clipped; the clamp keeps numbers within the range of SVG.
    const double share = std::clamp((at - low_) / (high_ - low_), -4.0, 5.0);
    return from_ + share * (to_ - from_);
  }

 private:
  bool is_logarithmic_;
  double low_;
  double high_;
  double from_;
  double to_;
};

struct Range {
  double low;
  double high;
  bool is_logarithmic = false;
};

double quantile(std::vector<double> values, double share) {
  const auto at = static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::ranges::nth_element(values, values.begin() + at);
  return values[static_cast<std::size_t>(at)];
}

/// Covers all means, and all but the outermost twentieth of the bands.
Range range_of_values(const Chart& chart) {
  std::vector<double> minima;
  std::vector<double> maxima;
  double low = chart.curves.front().points.front().y;
  double high = low;
  for (const Curve& curve : chart.curves)
    for (const ChartPoint& point : curve.points) {
      low = std::min(low, point.y);
      high = std::max(high, point.y);
      minima.push_back(point.min);
      maxima.push_back(point.max);
    }
  low = std::min(low, quantile(std::move(minima), 0.05));
  high = std::max(high, quantile(std::move(maxima), 0.95));
  if (chart.begins_at_0) {
    low = std::min(low, 0.0);
  } else if (low > 0 && high / low > kLogarithmic) {
    return {low / 1.2, high * 1.2, true};
  } else if (low > 0 && low < 0.35 * high) {
    low = 0;
  }
  if (high - low <= 1e-12 * std::abs(high)) {  // one value
    const double around = high == 0 ? 1 : 0.1 * std::abs(high);
    return {high > 0 && high - around < 0 ? 0 : high - around, high + around};
  }
  const double margin = 0.06 * (high - low);
  return {low == 0 ? 0 : low - margin, high + margin};
}

Range range_of_x(const Chart& chart) {
  double low = chart.curves.front().points.front().x;
  double high = std::max(low, chart.x_end);
  for (const Curve& curve : chart.curves) {
    low = std::min(low, curve.points.front().x);
    high = std::max(high, curve.points.back().x);
  }
  if (low < 0.1 * high) low = 0;
  if (high <= low) return {low - 1, low + 1};
  return {low, high};
}

/// Formats a tick with the decimals of the distance between ticks.
std::string tick_text(double value, double step) {
  if (value == 0) return "0";
  const double size = std::abs(value);
  if (size >= 1e15 || (size > 0 && size < 1e-4 && step < 1e-4)) return fmt::format("{:.3g}", value);
  for (const auto& [factor, suffix] : {std::pair{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e4, "k"}})
    if (size >= factor) {
      const double unit = factor == 1e4 ? 1e3 : factor;
      const int digits = static_cast<int>(std::clamp(-std::floor(std::log10(step / unit)), 0., 3.));
      return fmt::format("{:.{}f}{}", value / unit, digits, suffix);
    }
  const int decimals = static_cast<int>(std::clamp(-std::floor(std::log10(step) + 1e-9), 0., 6.));
  return fmt::format("{:.{}f}", value, decimals);
}

std::string path_of(const std::vector<ChartPoint>& points, const Scale& x, const Scale& y) {
  std::string path;
  for (const ChartPoint& point : points)
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x(point.x), y(point.y));
  return path;
}

/// The area between the minima and the maxima.
std::string band_of(const std::vector<ChartPoint>& points, const Scale& x, const Scale& y) {
  std::string path;
  for (const ChartPoint& point : points)
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x(point.x), y(point.max));
  for (auto point = points.rbegin(); point != points.rend(); ++point)
    path += fmt::format("L{:.1f} {:.1f}", x(point->x), y(point->min));
  return path + "Z";
}

std::string axes(const Chart& chart, const Range& steps, const Range& values, const Scale& x,
                 const Scale& y) {
  std::string svg;
  const std::vector<double> rows = values.is_logarithmic
                                       ? logarithmic_ticks(values.low, values.high)
                                       : ticks(values.low, values.high, 6);
  const double row_step = rows.size() > 1 ? rows[1] - rows[0] : 1;
  for (const double value : rows)
    svg += fmt::format(
        "<line class=\"{}\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
        "<text class=\"tick\" x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>",
        value == 0 ? "axis" : "grid", kLeft, kTotalWidth - kRight, y(value), y(value), kLeft - 8,
        y(value) + 4, tick_text(value, values.is_logarithmic ? value : row_step));
  const std::vector<double> columns =
      ticks(steps.low, steps.high, 6, chart.x_name == "step" ? 1 : 0);
  const double column_step = columns.size() > 1 ? columns[1] - columns[0] : 1;
  for (const double value : columns)
    svg +=
        fmt::format("<text class=\"tick\" x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                    x(value), kTop + kInnerHeight + 17, tick_text(value, column_step));
  svg += fmt::format(
      "<line class=\"axis\" x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/>"
      "<text class=\"name\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
      kLeft, kTotalWidth - kRight, kTop + kInnerHeight, kTop + kInnerHeight,
      kLeft + kInnerWidth / 2, kTotalHeight - 6, escape_html(chart.x_name));
  return svg;
}

/// A complete chart around `drawing`, with the values that the page's script shows at the pointer.
std::string card(const Chart& chart, const std::string& drawing, const nlohmann::json& values) {
  std::string legend;
  if (chart.curves.size() > 1) {
    for (const Curve& curve : chart.curves) legend += legend_entry(curve.color, curve.name);
    legend = "<div class=\"legend\">" + legend + "</div>";
  }
  return fmt::format(
      "<figure class=\"card\"><figcaption>{}{}</figcaption>{}"
      "<svg class=\"chart\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\" "
      "data-values=\"{}\">"
      "{}<line class=\"cursor\" y1=\"{}\" y2=\"{}\"/></svg></figure>\n",
      escape_html(chart.title),
      chart.unit.empty() ? "" : " <span class=\"unit\">" + escape_html(chart.unit) + "</span>",
      legend, kTotalWidth, kTotalHeight, escape_html(chart.title), escape_html(dump_json(values)),
      drawing, kTop, kTop + kInnerHeight);
}

std::string value_text(const ChartPoint& point) {
  if (point.min == point.max) return short_number(point.y);
  return fmt::format("{} ({} to {})", short_number(point.y), short_number(point.min),
                     short_number(point.max));
}

/// Data of the script: the horizontal positions of the points, and their texts.
nlohmann::json curve_values(const Curve& curve, const Scale& x, const Scale& y, bool has_marks) {
  nlohmann::json points = nlohmann::json::array();
  const auto tenth = [](double at) { return std::round(10 * at) / 10; };
  for (const ChartPoint& point : curve.points)
    points.push_back({tenth(x(point.x)), has_marks ? tenth(y(point.y)) : -1, short_number(point.x),
                      value_text(point)});
  return {{"name", curve.name}, {"color", color_of(curve.color)}, {"points", points}};
}

Chart without_empty_curves(Chart chart) {
  std::erase_if(chart.curves, [](const Curve& curve) { return curve.points.empty(); });
  return chart;
}

std::string clip() {
  return fmt::format(
      "clip-path=\"inset(0)\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" "
      "viewBox=\"{} {} {} {}\"",
      kLeft - 5, kTop, kInnerWidth + 10, kInnerHeight + 1, kLeft - 5, kTop, kInnerWidth + 10,
      kInnerHeight + 1);
}

}  // namespace

std::string legend_entry(int color, std::string_view name) {
  return fmt::format("<span class=\"key\"><i class=\"patch k{}{}\"></i>{}</span>", color_of(color),
                     is_dashed(color) ? " dashed" : "", escape_html(name));
}

std::string line_chart(const Chart& unfiltered) {
  const Chart chart = without_empty_curves(unfiltered);
  if (chart.curves.empty()) return {};
  const Range steps = range_of_x(chart);
  const Range values = range_of_values(chart);
  const Scale x(steps.low, steps.high, kLeft, kLeft + kInnerWidth);
  const Scale y(values.low, values.high, kTop + kInnerHeight, kTop, values.is_logarithmic);
  std::string bands;
  std::string lines;
  nlohmann::json texts = nlohmann::json::array();
  for (const Curve& curve : chart.curves) {
    const int color = color_of(curve.color);
    if (chart.curves.size() <= kMaxBands &&
        std::ranges::any_of(curve.points, [](const ChartPoint& p) { return p.min < p.max; }))
      bands +=
          fmt::format("<path class=\"band f{}\" d=\"{}\"/>", color, band_of(curve.points, x, y));
    lines += fmt::format("<path class=\"line s{}{}\" d=\"{}\"/>", color,
                         is_dashed(curve.color) ? " dashed" : "", path_of(curve.points, x, y));
    if (curve.has_dots || curve.points.size() == 1)
      for (const ChartPoint& point : curve.points)
        lines += fmt::format("<circle class=\"dot f{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"/>",
                             color, x(point.x), y(point.y), curve.points.size() > 40 ? 2.5 : 4);
    texts.push_back(curve_values(curve, x, y, true));
  }
  return card(chart,
              axes(chart, steps, values, x, y) + "<svg " + clip() + ">" + bands + lines + "</svg>",
              {{"x", chart.x_name}, {"curves", texts}});
}

std::string stacked_chart(const Chart& unfiltered) {
  Chart chart = without_empty_curves(unfiltered);
  if (chart.curves.empty()) return {};
  std::vector<double> sums(chart.curves.front().points.size(), 0);
  Chart tops = chart;
  tops.begins_at_0 = true;
  for (Curve& curve : tops.curves)
    for (std::size_t i = 0; i < sums.size(); ++i) {
      ChartPoint& point = curve.points.at(i);
      point.min = sums[i];
      sums[i] += point.y;
      point.y = point.max = sums[i];
    }
  const Range steps = range_of_x(tops);
  const Range values = range_of_values(tops);
  const Scale x(steps.low, steps.high, kLeft, kLeft + kInnerWidth);
  const Scale y(values.low, values.high, kTop + kInnerHeight, kTop);
  std::string areas;
  nlohmann::json texts = nlohmann::json::array();
  // In drawing order: the topmost part first. Points are not marked.
  for (std::size_t i = tops.curves.size(); i-- > 0;) {
    areas += fmt::format("<path class=\"area f{}\" d=\"{}\"/>", color_of(tops.curves[i].color),
                         band_of(tops.curves[i].points, x, y));
    for (ChartPoint& point : chart.curves[i].points) point.min = point.max = point.y;
    texts.push_back(curve_values(chart.curves[i], x, y, false));
  }
  return card(tops, axes(tops, steps, values, x, y) + "<svg " + clip() + ">" + areas + "</svg>",
              {{"x", chart.x_name}, {"curves", texts}});
}

std::string share_bar(const std::vector<BarPart>& parts) {
  double total = 0;
  for (const BarPart& part : parts) total += part.value;
  if (!(total > 0)) return {};
  std::string bar;
  std::string rows;
  for (const BarPart& part : parts) {
    const double percent = 100 * part.value / total;
    if (percent > 0.05)
      bar += fmt::format("<i class=\"k{}\" style=\"flex-grow:{:.2f}\" title=\"{}: {}\"></i>",
                         color_of(part.color), percent, escape_html(part.name),
                         escape_html(part.text));
    rows += fmt::format("<tr><th>{}</th><td>{}</td><td>{:.1f} %</td></tr>",
                        legend_entry(part.color, part.name), escape_html(part.text), percent);
  }
  return fmt::format("<div class=\"bar\">{}</div><table class=\"parts\">{}</table>", bar, rows);
}

}  // namespace lockstep::inline v0::apps::report
