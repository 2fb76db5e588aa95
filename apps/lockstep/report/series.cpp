#include "apps/lockstep/report/series.h"

#include <algorithm>
#include <cmath>

namespace lockstep::inline v0::apps::report {
namespace {

/// Sums of larger values could exceed a double.
constexpr double kMaxValue = 1e100;

Bin joined(const Bin& first, const Bin& second) {
  return {.first_step = first.first_step,
          .last_step = second.last_step,
          .first_seconds = first.first_seconds,
          .last_seconds = second.last_seconds,
          .min = std::min(first.min, second.min),
          .max = std::max(first.max, second.max),
          .sum = first.sum + second.sum,
          .points = first.points + second.points};
}

/// Merges each `group` adjacent bins.
std::vector<Bin> grouped(const std::vector<Bin>& bins, std::size_t group) {
  std::vector<Bin> result;
  for (std::size_t i = 0; i < bins.size(); ++i) {
    if (i % group == 0)
      result.push_back(bins[i]);
    else
      result.back() = joined(result.back(), bins[i]);
  }
  return result;
}

}  // namespace

void Series::add(const Point& point) {
  if (!(std::abs(point.value) < kMaxValue)) return;
  if (!bins_.empty() && point.step < bins_.back().last_step) return;
  const Bin bin = {.first_step = point.step,
                   .last_step = point.step,
                   .first_seconds = point.seconds,
                   .last_seconds = point.seconds,
                   .min = point.value,
                   .max = point.value,
                   .sum = point.value,
                   .points = 1};
  if (!bins_.empty() && bins_.back().points < stride_) {
    bins_.back() = joined(bins_.back(), bin);
    return;
  }
  if (bins_.size() == kMaxBins) {
    bins_ = grouped(bins_, 2);
    stride_ *= 2;
  }
  bins_.push_back(bin);
}

void Series::drop_after(std::int64_t step) {
  while (!bins_.empty() && bins_.back().first_step > step) bins_.pop_back();
  if (!bins_.empty()) bins_.back().last_step = std::min(bins_.back().last_step, step);
}

std::vector<Bin> Series::coarse(std::size_t count) const {
  return grouped(bins_, std::max<std::size_t>(1, (bins_.size() + count - 1) / count));
}

double Series::mean_at(double step) const {
  if (bins_.empty()) return 0;
  const auto next = std::ranges::lower_bound(bins_, step, {}, &Bin::step);
  if (next == bins_.begin()) return next->mean();
  if (next == bins_.end()) return bins_.back().mean();
  const auto before = std::prev(next);
  return (step - before->step() <= next->step() - step ? *before : *next).mean();
}

std::int64_t Series::points() const {
  std::int64_t points = 0;
  for (const Bin& bin : bins_) points += bin.points;
  return points;
}

double Series::mean() const {
  double sum = 0;
  for (const Bin& bin : bins_) sum += bin.sum;
  return bins_.empty() ? 0 : sum / static_cast<double>(points());
}

}  // namespace lockstep::inline v0::apps::report
