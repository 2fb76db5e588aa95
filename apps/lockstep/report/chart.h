// Charts as SVG elements for an HTML page, whose style sheet has their colors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::apps::report {

inline constexpr int kColors = 8;           ///< of curves: --c0 to --c7 of the style sheet
inline constexpr int kGray = kColors;       ///< one more color, --c8, for "everything else"
inline constexpr std::size_t kWidth = 180;  ///< points that a curve of a chart needs at most

/// A point of a curve, and the range of the values that it stands for.
struct ChartPoint {
  double x = 0;
  double y = 0;
  double min = 0;
  double max = 0;
};

/// A curve. The range of its points is drawn as a pale band, in
/// charts of few curves.
struct Curve {
  std::string name;
  int color = 0;                   ///< from 0; after kGray, the colors repeat, dashed
  bool has_dots = false;           ///< whether its points are marked: for few ones
  std::vector<ChartPoint> points;  ///< ascending
};

/// One chart.
struct Chart {
  std::string title;
  std::string unit = {};        ///< of the values; shown behind the title
  std::string x_name = "step";  ///< such as "minutes"
  double x_end = 0;             ///< the horizontal axis reaches at least to here
  bool begins_at_0 = false;     ///< whether the axis of values begins at 0, and is linear
  std::vector<Curve> curves;
};

/// The chart with its title, its legend (if it has several curves) and the values that are shown at
/// the pointer. Empty if there are no points. The axis of values is logarithmic if they are
/// positive and span more than a factor of 200.
std::string line_chart(const Chart& chart);

/// The same with each curve on top of those before it. All have the same x.
std::string stacked_chart(const Chart& chart);

/// A horizontal bar of parts with lengths in proportion to their values.
struct BarPart {
  std::string name;
  int color = 0;
  double value = 0;
  std::string text = {};  ///< the value as the legend shows it
};
/// The bar, and below it a legend with all values and percentages.
std::string share_bar(const std::vector<BarPart>& parts);

/// A row of a legend: a patch of color and a name.
std::string legend_entry(int color, std::string_view name);

}  // namespace lockstep::apps::report
