#include "lockstep/train/callbacks/exposition.h"

#include <gtest/gtest.h>

#include <limits>

namespace lockstep::inline v0::train {
namespace {

std::string some_metrics(Exposition format) {
  ExpositionWriter out(format);
  out.begin_counter("app_time_seconds", "seconds", "A time");
  out.add(1.5, {{"phase", "input"}, {"host", "a"}});
  out.add(2, {{"phase", "compute"}, {"host", "a"}});
  out.begin_gauge("app_step", "", "A step");
  out.add(1e9);
  return std::move(out).finish();
}

TEST(ExpositionTest, IsPrometheusText) {
  EXPECT_EQ(some_metrics(Exposition::prometheus),
            "# HELP app_time_seconds_total A time\n"
            "# TYPE app_time_seconds_total counter\n"
            "app_time_seconds_total{phase=\"input\",host=\"a\"} 1.5\n"
            "app_time_seconds_total{phase=\"compute\",host=\"a\"} 2\n"
            "# HELP app_step A step\n"
            "# TYPE app_step gauge\n"
            "app_step 1000000000\n");
}

TEST(ExpositionTest, IsOpenMetricsText) {
  EXPECT_EQ(some_metrics(Exposition::open_metrics),
            "# HELP app_time_seconds A time\n"
            "# TYPE app_time_seconds counter\n"
            "# UNIT app_time_seconds seconds\n"
            "app_time_seconds_total{phase=\"input\",host=\"a\"} 1.5\n"
            "app_time_seconds_total{phase=\"compute\",host=\"a\"} 2\n"
            "# HELP app_step A step\n"
            "# TYPE app_step gauge\n"
            "app_step 1000000000\n"
            "# EOF\n");
}

TEST(ExpositionTest, CountsValuesUpToEachBound) {
  Histogram values({0.5, 1, 10});
  for (const double value : {0.25, 0.5, 1.5, 100.0}) values.add(value);
  ExpositionWriter out(Exposition::prometheus);
  out.histogram("t_seconds", "seconds", "A time", values);
  EXPECT_EQ(std::move(out).finish(),
            "# HELP t_seconds A time\n"
            "# TYPE t_seconds histogram\n"
            "t_seconds_bucket{le=\"0.5\"} 2\n"
            "t_seconds_bucket{le=\"1.0\"} 2\n"
            "t_seconds_bucket{le=\"10.0\"} 3\n"
            "t_seconds_bucket{le=\"+Inf\"} 4\n"
            "t_seconds_sum 102.25\n"
            "t_seconds_count 4\n");
}

TEST(ExpositionTest, WritesAnyLabelAndAnyNumber) {
  ExpositionWriter out(Exposition::prometheus);
  out.begin_gauge("g", "", "A value");
  out.add(std::numeric_limits<double>::quiet_NaN(), {{"a", "C:\\\"x\"\ny"}});
  out.add(std::numeric_limits<double>::infinity(), {{"a", "\xFF"}});
  out.add(-std::numeric_limits<double>::infinity(), {{"a", "\xC3\xA9"}});
  EXPECT_EQ(std::move(out).finish(),
            "# HELP g A value\n"
            "# TYPE g gauge\n"
            "g{a=\"C:\\\\\\\"x\\\"\\ny\"} NaN\n"
            "g{a=\"percent-encoded:%FF\"} +Inf\n"
            "g{a=\"\xC3\xA9\"} -Inf\n");
}

}  // namespace
}  // namespace lockstep::inline v0::train
