// Windows of consecutive rows of a table, for forecasts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep::inline v0::data {

/// How consecutive rows of a table become one sample: the features of `rows` rows, and the label or
/// the targets of later ones.
struct TableWindow {
  static constexpr std::int64_t kMaxRows = 1 << 20;  ///< the largest of these numbers

  std::int64_t rows = 0;     ///< rows of the features, T; 0: a sample is a row
  std::int64_t horizon = 1;  ///< rows from the last feature row to the first targets
  std::int64_t steps = 1;    ///< rows of targets, one after another
  std::int64_t stride = 1;   ///< rows between the beginnings of two windows
  std::string series = {};   ///< column of series names; empty: one series

  /// Number of rows of a window, without those of targets that are not read.
  std::int64_t span(bool has_targets) const {
    return has_targets ? rows + horizon + steps - 1 : rows;
  }
  /// Whether samples have the same meaning; they may begin at other rows.
  bool agrees_with(const TableWindow& other) const;
  /// ", windows of 24 rows"; empty if a sample is a row.
  std::string preparation() const;
  bool operator==(const TableWindow&) const = default;
};

/// The first rows of the windows of a table. No window has rows of two series.
class WindowStarts {
 public:
  WindowStarts() = default;  ///< no windows
  /// Windows of `span` rows. `ends`: one past the last row of each series, the first of which
  /// begins at row 0.
  WindowStarts(std::span<const std::int64_t> ends, std::int64_t span, std::int64_t stride);

  std::int64_t size() const { return size_; }        ///< number of windows
  std::int64_t skipped() const { return skipped_; }  ///< series that are too short for a window
  std::int64_t row(std::int64_t window) const;       ///< the first row of this window

 private:
  struct Series {
    std::int64_t window;  // first window
    std::int64_t row;
  };
  std::int64_t stride_ = 1;
  std::int64_t size_ = 0;
  std::int64_t skipped_ = 0;
  std::vector<Series> series_;  // series that have a window
};

}  // namespace lockstep::inline v0::data
