#include "apps/lockstep/report/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <regex>
#include <string>
#include <vector>

#include "apps/lockstep/report/chart.h"
#include "apps/lockstep/report/text.h"
#include "tests/apps/report/logs.h"

namespace lockstep::inline v0::apps::report {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string log_text() {
  std::string text = start_event();
  for (int step = 1; step <= 40; ++step)
    text += step_event(step, 2.0 / step,
                       R"("samples_per_second":640,"breakdown":{"input":0.01,"compute":0.05},)"
                       R"("bound_by":"compute","verdict":"step 60 ms, bound by compute",)"
                       R"("replica_input_ms":[1,1],"replica_compute_ms":[10,30],)"
                       R"("replica_waiting_ms":[20,0],)");
  return text + epoch_event(40, 0.75) + end_event(40);
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

/// Expects that all elements are closed in the right order.
void expect_balanced(const std::string& page) {
  const std::regex tag(R"(<(/?)([a-z0-9]+)([^>]*)>)");
  std::vector<std::string> open;
  const std::size_t body = page.find("<body>");
  const std::string text = page.substr(body, page.find("<script>") - body);
  for (std::sregex_iterator found(text.begin(), text.end(), tag), end; found != end; ++found) {
    const std::string name = (*found)[2];
    if ((*found)[3].str().ends_with('/')) continue;
    if ((*found)[1].length() == 0) {
      open.push_back(name);
    } else {
      ASSERT_FALSE(open.empty());
      ASSERT_EQ(open.back(), name) << found->str() << " at " << found->position();
      open.pop_back();
    }
  }
  EXPECT_EQ(open, std::vector<std::string>{"body"});
}

TEST(ReportPage, OfOneRunHasAllSections) {
  const std::vector<RunLog> runs = {log_of(log_text())};
  const std::string page = report_page(runs, {.goal = {}, .prices = {36}});
  for (const char* heading :
       {"Curves", "Where the time of a step goes", "Replicas", "Events", "Configuration"})
    EXPECT_THAT(page, HasSubstr("<h2>" + std::string(heading) + "</h2>"));
  EXPECT_THAT(page, HasSubstr("step 60 ms, bound by compute"));
  EXPECT_THAT(page, HasSubstr("<td>10.00 ms</td><td>16.7 %</td>"));
  EXPECT_THAT(page, HasSubstr("Replica 1 is the slowest"));
  EXPECT_THAT(page, HasSubstr("Bound by compute in 40 intervals."));
  EXPECT_THAT(page, HasSubstr("<b>0.82</b>")) << "two hosts for 41 s at 36 an hour";
  EXPECT_THAT(page,
              HasSubstr("<footer>Written by lockstep report. Curves are means; the pale bands "
                        "are the range of all values.</footer>"));
  expect_balanced(page);
}

TEST(ReportPage, NamesSlowestReplicaIfOthersHaveNoSamples) {
  const std::vector<RunLog> runs = {
      log_of(start_event() + step_event(10, 1,
                                        R"("replica_input_ms":[0,0],"replica_compute_ms":[5,0],)"
                                        R"("replica_waiting_ms":[0,5],)"))};
  EXPECT_THAT(
      report_page(runs, {}),
      HasSubstr("Replica 0 is the slowest: its steps take 5 ms, 5 ms longer than the median"));
}

TEST(ReportPage, IsSelfContained) {
  const std::vector<RunLog> runs = {log_of(log_text())};
  const std::string page = report_page(runs, {});
  for (const char* reference : {"http:", "https:", "src=", "@import", "url(", "<link"})
    EXPECT_THAT(page, Not(HasSubstr(reference)));
}

TEST(ReportPage, EscapesContentsOfLogs) {
  const std::vector<RunLog> runs = {
      log_of(start_event(R"("run":"x","strategy":"<script>alert(1)</script>",)") +
             step_event(1, 1, R"("<img>":1,"bound_by":"<i>","verdict":"a & \"b\"",)"))};
  const std::string page = report_page(runs, {});
  EXPECT_EQ(count_of(page, "<script>"), 1U);
  EXPECT_THAT(page, Not(HasSubstr("<img>")));
  EXPECT_THAT(page, Not(HasSubstr("<b></td>"))) << "the name of a host";
  EXPECT_THAT(page, AllOf(HasSubstr("&lt;script&gt;alert(1)"), HasSubstr("a &amp; &quot;b&quot;")));
  expect_balanced(page);
}

TEST(ReportPage, DrawsEpochsOfAShortTraining) {
  const std::string loss = R"("loss":0.5,"breakdown":{"compute":0.01},)";
  const std::vector<RunLog> runs = {log_of(start_event() + epoch_event(17, 0.1, loss) +
                                           epoch_event(34, 0.2, loss) + step_event(40, 0.4) +
                                           epoch_event(51, 0.3, loss) + end_event(51))};
  const std::string page = report_page(runs, {});
  EXPECT_EQ(count_of(page, "<circle"), 3U * 3) << "loss, accuracy of the validation, samples/s";
  EXPECT_THAT(page, HasSubstr("Time of a step"));
}

TEST(ReportPage, HasNoChartOfOneInterval) {
  const std::vector<RunLog> runs = {
      log_of(start_event() + epoch_event(17, 0.1, R"("breakdown":{"compute":0.01},)"))};
  const std::string page = report_page(runs, {});
  EXPECT_THAT(page, Not(HasSubstr("Time of a step")));
  EXPECT_THAT(page, HasSubstr("10.00 ms</td><td>100.0 %"));
}

TEST(ReportPage, ComparesRuns) {
  std::vector<RunLog> runs = {
      log_of(log_text(), "slow"),
      log_of(start_event(R"("precision":"bfloat16",)") + step_event(10, 1) + epoch_event(20, 0.8),
             "fast")};
  const std::string page = report_page(runs, {.goal = {}, .prices = {36, 72}});
  EXPECT_THAT(page, HasSubstr("<h1>2 trainings</h1>"));
  EXPECT_THAT(page, HasSubstr("time to validation accuracy of 0.75"));
  EXPECT_THAT(page, HasSubstr("class=\"best\">21 s <small>step 20</small>"));
  EXPECT_THAT(page, HasSubstr("still running, or killed"));
  EXPECT_THAT(page, HasSubstr("<h3>Differences</h3>"));
  EXPECT_THAT(page, HasSubstr("<th>precision</th><td>–</td><td>bfloat16</td>"));
  EXPECT_THAT(page, HasSubstr("Validation accuracy over time"));
  expect_balanced(page);
}

TEST(ReportPage, LimitsNumberOfRuns) {
  std::vector<RunLog> runs;
  for (std::size_t i = 0; i < kMaxRuns; ++i)
    runs.push_back(log_of(log_text(), fmt::format("run{}", i)));
  const std::string page = report_page(runs, {});
  EXPECT_THAT(page, HasSubstr("line s0 dashed"));
  EXPECT_THAT(page, HasSubstr("line s7 dashed"));
  EXPECT_THAT(page, Not(HasSubstr("line s8")));
  EXPECT_THAT(page, HasSubstr("All runs have the same configuration."));
}

TEST(ReportPage, ReportsIncompleteLogs) {
  const std::vector<RunLog> runs = {
      log_of(step_event(10, 1) + "damaged\n" + step_event(20, 1).substr(0, 9))};
  const std::string page = report_page(runs, {});
  EXPECT_THAT(page, HasSubstr("The log does not have its beginning."));
  EXPECT_THAT(page, HasSubstr("The last line of the log is incomplete"));
  EXPECT_THAT(page, HasSubstr("1 line of the log is no event, the first is line 2."));
  EXPECT_THAT(page, HasSubstr("This log has no times of steps"));
  expect_balanced(page);
}

TEST(ReportPage, IsSmallForMillionSteps) {
  Series loss;
  for (std::int64_t step = 1; step <= 1'000'000; ++step)
    loss.add({step, 0.001 * static_cast<double>(step), 1.0 / static_cast<double>(step % 100 + 1)});
  std::vector<RunLog> runs = {log_of(log_text())};
  for (const char* name : {"loss", "accuracy", "a", "b", "samples_per_second", "gradient_norm"})
    runs.front().step_values[name] = loss;
  EXPECT_LT(report_page(runs, {}).size(), 400'000U);
}

TEST(LineChart, AcceptsAnyNumbers) {
  for (const double value : {0.0, 1.0, -1.0, 1e99, -1e99, 1e-99})
    for (const double x : {0.0, 1.0, 9e15, 1e10 + 1e-6}) {
      const Chart chart{.title = "t",
                        .curves = {{.name = "a", .points = {{x, value, value, value}}},
                                   {.name = "b", .points = {{1e10, 1, 0, 2}}}}};
      const std::string svg = line_chart(chart);
      EXPECT_THAT(svg, AllOf(Not(HasSubstr("nan")), Not(HasSubstr("inf ")), HasSubstr("</svg>")))
          << value << " at " << x;
      EXPECT_LT(svg.size(), 20'000U);
    }
  EXPECT_EQ(line_chart({.title = "none", .curves = {{.name = "a", .points = {}}}}), "");
}

TEST(LineChart, IsLogarithmicForLargeRange) {
  Chart chart{.title = "t", .curves = {{.name = "a", .points = {}}}};
  for (int i = 0; i <= 6; ++i) {
    const double value = std::pow(10, -i);
    chart.curves[0].points.push_back({static_cast<double>(i), value, value, value});
  }
  EXPECT_THAT(line_chart(chart), HasSubstr(">0.001</text>"));
  chart.begins_at_0 = true;
  EXPECT_THAT(line_chart(chart), Not(HasSubstr(">0.001</text>")));
}

TEST(ShortNumber, HasFourDigits) {
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(0.42586), "0.4259");
  EXPECT_EQ(short_number(12345.6), "12,346");
  EXPECT_EQ(short_number(-1234), "-1,234");
  EXPECT_EQ(short_number(314'243'000), "314.2M");
  EXPECT_EQ(short_number(999'999.9), "1M");
  EXPECT_EQ(short_number(1.5e-7), "1.5e-07");
}

TEST(TimeText, HasReadableUnit) {
  EXPECT_EQ(time_text(-1e-18), "0 s");
  EXPECT_EQ(time_text(0.00035), "350 µs");
  EXPECT_EQ(time_text(12.34), "12.3 s");
  EXPECT_EQ(time_text(59.96), "1 min 0 s");
  EXPECT_EQ(time_text(4980), "1 h 23 min");
  EXPECT_EQ(time_text(200'000), "2 d 7 h");
  EXPECT_EQ(time_text(0.0001234, unit_for(0.005)), "0.12 ms");
}

}  // namespace
}  // namespace lockstep::inline v0::apps::report
