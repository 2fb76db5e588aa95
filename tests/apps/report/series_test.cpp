#include "apps/lockstep/report/series.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep::inline v0::apps::report {
namespace {

Point at(std::int64_t step, double value) {
  return {.step = step, .seconds = 0.5 * static_cast<double>(step), .value = value};
}

TEST(Series, KeepsFewPointsUnchanged) {
  Series series;
  for (std::int64_t step = 10; step <= 30; step += 10)
    series.add(at(step, static_cast<double>(step)));
  ASSERT_EQ(series.bins().size(), 3U);
  EXPECT_EQ(series.bins()[1].first_step, 20);
  EXPECT_EQ(series.bins()[1].last_seconds, 10);
  EXPECT_EQ(series.bins()[1].mean(), 20);
  EXPECT_EQ(series.mean(), 20);
}

TEST(Series, KeepsMeanAndExtremes) {
  Series series;
  constexpr std::int64_t kPoints = 100'003;
  for (std::int64_t step = 1; step <= kPoints; ++step)
    series.add(at(step, step == 77'777 ? 50 : static_cast<double>(step % 2)));
  EXPECT_LE(series.bins().size(), Series::kMaxBins);
  EXPECT_GT(series.bins().size(), Series::kMaxBins / 4);
  std::int64_t points = 0;
  std::int64_t last = 0;
  double max = 0;
  for (const Bin& bin : series.bins()) {
    EXPECT_EQ(bin.first_step, last + 1);
    last = bin.last_step;
    points += bin.points;
    max = std::max(max, bin.max);
  }
  EXPECT_EQ(points, kPoints);
  EXPECT_EQ(last, kPoints);
  EXPECT_EQ(max, 50) << "one peak among many points";
  EXPECT_NEAR(series.mean(), 0.5, 0.001);
  EXPECT_LE(series.coarse(180).size(), 180U);
  EXPECT_EQ(series.coarse(180).back().last_step, kPoints);
}

TEST(Series, IgnoresInvalidPoints) {
  Series series;
  series.add(at(5, 1));
  series.add(at(6, std::nan("")));
  series.add(at(6, std::numeric_limits<double>::infinity()));
  series.add(at(6, 1e300));
  series.add(at(4, 9));
  ASSERT_EQ(series.bins().size(), 1U);
  EXPECT_EQ(series.bins()[0].max, 1);
}

TEST(Series, DropsRepeatedSteps) {
  Series series;
  for (std::int64_t step = 1; step <= 10; ++step) series.add(at(step, 1));
  series.drop_after(4);
  EXPECT_EQ(series.bins().size(), 4U);
  series.add(at(5, 3));
  EXPECT_EQ(series.bins().back().mean(), 3);
}

TEST(Series, HasMeanNearStep) {
  Series series;
  EXPECT_EQ(series.mean_at(3), 0);
  EXPECT_EQ(series.mean(), 0);
  series.add(at(10, 1));
  series.add(at(20, 2));
  EXPECT_EQ(series.mean_at(0), 1);
  EXPECT_EQ(series.mean_at(14), 1);
  EXPECT_EQ(series.mean_at(16), 2);
  EXPECT_EQ(series.mean_at(99), 2);
}

}  // namespace
}  // namespace lockstep::inline v0::apps::report
