// Charts as SVG elements for an HTML page, whose style sheet has their colors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::inline v0::apps::report {

inline constexpr int kColors = 8;           ///< curve colors --c0 to --c7 of the style sheet
inline constexpr int kGray = kColors;       ///< one more color, --c8, for "everything else"
inline constexpr std::size_t kWidth = 180;  ///< maximum number of points of a curve

/// A point of a curve, and the range of the values that it represents.
struct ChartPoint {
  double x = 0;
  double y = 0;
  double min = 0;
  double max = 0;
};

/// A curve. Charts of few curves draw the range of its points as a pale band.
struct Curve {
  std::string name;
  int color = 0;                   ///< from 0; after kGray, the colors repeat, dashed
  bool has_dots = false;           ///< whether its points are marked
  std::vector<ChartPoint> points;  ///< ascending
};

/// One chart.
struct Chart {
  std::string title;
  std::string unit = {};        ///< unit of the values, shown after the title
  std::string x_name = "step";  ///< such as "minutes"
  double x_end = 0;             ///< minimum end of the horizontal axis
  bool begins_at_0 = false;     ///< whether the axis of values is linear from 0
  std::vector<Curve> curves;
};

/// The chart with its title, its legend (if it has several curves) and the values that are shown at
/// the pointer. Empty if there are no points. The axis of values is logarithmic if they are
/// positive and span more than a factor of 200.
std::string line_chart(const Chart& chart);

/// Stacks the curves on top of each other. All have the same x.
std::string stacked_chart(const Chart& chart);

/// A part of a horizontal bar, with a length in proportion to its value.
struct BarPart {
  std::string name;
  int color = 0;
  double value = 0;
  std::string text = {};  ///< the value as the legend shows it
};
/// A bar, with a legend of all values and percentages below it.
std::string share_bar(const std::vector<BarPart>& parts);

/// A row of a legend: a patch of color and a name.
std::string legend_entry(int color, std::string_view name);

}  // namespace lockstep::inline v0::apps::report
