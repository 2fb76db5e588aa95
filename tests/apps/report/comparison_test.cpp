#include "apps/lockstep/report/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/apps/report/logs.h"

namespace lockstep::inline v0::apps::report {
namespace {

using ::testing::HasSubstr;

std::vector<RunLog> two_runs() {
  return {log_of(start_event(R"("options":{"optimizer":"sgd","seed":"1"},)") +
                 epoch_event(10, 0.5) + epoch_event(20, 0.8) + epoch_event(30, 0.7)),
          log_of(start_event(R"("options":{"optimizer":"adam","seed":"1","ema":"0.9"},)") +
                 epoch_event(10, 0.6) + epoch_event(20, 0.7))};
}

TEST(ParseGoal, ParsesMetricAndValue) {
  EXPECT_EQ(parse_goal("validation_accuracy=0.9").value, 0.9);
  EXPECT_EQ(parse_goal("validation_accuracy=0.9").metric.name, "validation_accuracy");
  EXPECT_EQ(parse_goal("score:max=2").metric.direction, train::Direction::max);
  EXPECT_FALSE(parse_goal("loss").value);
  EXPECT_EQ(refusal_of([] { parse_goal("loss=small"); }),
            "[--target] expected METRIC or METRIC=X with a number X, got \"loss=small\"");
}

TEST(ChooseGoal, IsBestValueReachedByAllRuns) {
  const std::vector<RunLog> runs = two_runs();
  const auto goal = choose_goal(runs, {});
  ASSERT_TRUE(goal);
  EXPECT_EQ(goal->metric.name, "validation_accuracy");
  EXPECT_EQ(goal->value, 0.7);
  EXPECT_EQ(first_reached(runs[0], *goal)->step, 20);
  EXPECT_EQ(first_reached(runs[1], *goal)->step, 20);
  EXPECT_EQ(best_point(runs[0], goal->metric)->value, 0.8);
  EXPECT_FALSE(first_reached(runs[1], *choose_goal(runs, parse_goal("validation_accuracy=0.75"))));
}

TEST(ChooseGoal, MinimizesALoss) {
  std::vector<RunLog> runs;
  for (const double best : {0.2, 0.3})
    runs.push_back(log_of(
        start_event() + fmt::format("{{\"event\":\"validation\",\"step\":1,\"validation_loss\":1}}"
                                    "\n{{\"event\":\"validation\",\"step\":2,"
                                    "\"validation_loss\":{}}}\n",
                                    best)));
  const auto goal = choose_goal(runs, {});
  ASSERT_TRUE(goal);
  EXPECT_EQ(goal->value, 0.3);
  EXPECT_EQ(first_reached(runs[0], *goal)->step, 2);
}

TEST(ChooseGoal, AcceptsShortNameOfTop5Accuracy) {
  const std::vector<RunLog> runs = {log_of(
      start_event() + "{\"event\":\"validation\",\"step\":7,\"validation_top5_accuracy\":0.95}\n")};
  const auto goal = choose_goal(runs, parse_goal("validation_top5=0.9"));
  ASSERT_TRUE(goal);
  ASSERT_TRUE(first_reached(runs.front(), *goal));
  EXPECT_EQ(first_reached(runs.front(), *goal)->step, 7);
}

TEST(ChooseGoal, RequiresMetricOfRuns) {
  const std::vector<RunLog> runs = two_runs();
  EXPECT_THAT(refusal_of([&] { choose_goal(runs, parse_goal("validation_acuracy=0.9")); }),
              HasSubstr("did you mean validation_accuracy?"));
  const std::vector<RunLog> none = {log_of(start_event())};
  EXPECT_FALSE(choose_goal(none, {}));
}

TEST(Cost, CountsAllHosts) {
  const RunLog run = two_runs().front();
  EXPECT_DOUBLE_EQ(cost_of(run, 1800, 3), 3) << "two hosts for half an hour";
}

TEST(Cost, CountsHostsOfEachRun) {
  const RunLog run =
      log_of(start_event() + step_event(10, 4) +
             R"({"event":"start","first_step":10,"nodes":1,"start_seconds":0,"time":200})" + "\n" +
             R"({"event":"step","step":20,"loss":2,"time":209})" + "\n");
  EXPECT_DOUBLE_EQ(run.seconds, 20);
  EXPECT_DOUBLE_EQ(cost_of(run, 20, 3600), 2 * 11 + 9);
  EXPECT_DOUBLE_EQ(cost_of(run, 5, 3600), 2 * 5);
}

TEST(Settings, AreOptionsAndFactsOfStart) {
  const auto settings = settings_of(two_runs());
  const auto find = [&](const std::string& name) {
    return *std::ranges::find(settings, name, &Setting::name);
  };
  EXPECT_EQ(settings.front().name, "--ema") << "options first";
  EXPECT_EQ(find("--ema").values, (std::vector<std::string>{"–", "0.9"}));
  EXPECT_TRUE(find("--optimizer").differs());
  EXPECT_FALSE(find("--seed").differs());
  EXPECT_EQ(find("global_batch").values.front(), "64");
  EXPECT_EQ(std::ranges::count(settings, "time", &Setting::name), 0);
}

}  // namespace
}  // namespace lockstep::inline v0::apps::report
