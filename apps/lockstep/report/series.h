// A curve of any length in bounded memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::inline v0::apps::report {

/// A value that was measured at one step.
struct Point {
  std::int64_t step = 0;  ///< completed steps
  double seconds = 0;     ///< since the start of the training
  double value = 0;       ///< finite
};

/// Consecutive points of a Series, combined.
struct Bin {
  std::int64_t first_step = 0;
  std::int64_t last_step = 0;
  double first_seconds = 0;
  double last_seconds = 0;
  double min = 0;
  double max = 0;
  double sum = 0;
  std::int64_t points = 0;

  double mean() const { return sum / static_cast<double>(points); }
  double step() const { return 0.5 * static_cast<double>(first_step + last_step); }  ///< middle
  double seconds() const { return 0.5 * (first_seconds + last_seconds); }            ///< middle
};

/// Points in step order, combined to at most kMaxBins bins of equal size. When all bins are full,
/// adjacent pairs are merged. Bins keep the minimum and maximum of their points, so that a curve
/// drawn from them shows every peak.
class Series {
 public:
  static constexpr std::size_t kMaxBins = 512;  ///< even

  /// Appends a point. Ignores values that are not finite (or above 1e100), and steps before
  /// the last one.
  void add(const Point& point);
  /// Removes the bins that begin after `step`, from which a resumed training repeats.
  void drop_after(std::int64_t step);

  bool empty() const { return bins_.empty(); }
  const std::vector<Bin>& bins() const { return bins_; }  ///< ascending; the last may be incomplete
  /// bins() merged to at most `count` bins. `count` is positive.
  std::vector<Bin> coarse(std::size_t count) const;
  /// The mean of the bin nearest to `step`; 0 if there is none.
  double mean_at(double step) const;
  double mean() const;          ///< mean of all points; 0 if there are none
  std::int64_t points() const;  ///< number of points that were added

 private:
  std::vector<Bin> bins_;
  std::int64_t stride_ = 1;  // points per full bin
};

}  // namespace lockstep::inline v0::apps::report
