// lockstep plan as a program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>
#include <string>

#include "apps/lockstep/plan/plan_output.h"
#include "lockstep/base/error.h"
#include "tests/apps/program.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::apps {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kPlan =
    "plan --model mlp --data synthetic:8x8x1,4,512 --global-batch 32 --epochs 2 --quiet --seconds "
    "1 ";

class PlanCommand : public ::testing::Test {
 protected:
  std::string file(const std::string& name) const { return (folder_.path() / name).string(); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(file(name)) << text;
  }

  data::TemporaryDirectory folder_;
};

TEST_F(PlanCommand, PredictsFromMeasurement) {
  const Result result = run_lockstep(kPlan + "--replicas 1,2-4 --json --price 2");
  ASSERT_EQ(result.status, 0) << result.errors;
  const nlohmann::json plan = result.event("plan");
  ASSERT_EQ(plan["rows"].size(), 4U);
  for (int i = 0; i < 4; ++i) {
    const nlohmann::json& row = plan["rows"][i];
    EXPECT_EQ(row["replicas"], i + 1);
    double sum = 0;
    for (const auto& [name, seconds] : row["breakdown"].items()) sum += seconds.get<double>();
    EXPECT_NEAR(sum, row["step_seconds"].get<double>(), 1e-9);
    EXPECT_NEAR(row["hours"].get<double>(), 1024 / row["samples_per_second"].get<double>() / 3600,
                1e-9);
    EXPECT_NEAR(row["cost"].get<double>(), 2 * (i + 1) * row["hours"].get<double>(), 1e-9);
  }
  EXPECT_EQ(plan["rows"][3]["per_replica_batch"], 8);
  EXPECT_EQ(plan["most"], 4);
}

TEST_F(PlanCommand, UsesAnEarlierMeasurement) {
  const Result first =
      run_lockstep(kPlan + "--replicas 1-4 --json --save-calibration " + file("calibration.json"));
  ASSERT_EQ(first.status, 0) << first.errors;
  const std::string earlier =
      "plan --quiet --calibration " + file("calibration.json") + " --replicas 1-4 --epochs 2 ";
  const Result again = run_lockstep(earlier + "--json");
  EXPECT_EQ(again.output, first.output) << again.errors;
  const nlohmann::json slow = run_lockstep(earlier + "--json --link 1Mbit").event("plan");
  EXPECT_GT(slow["rows"][3]["step_seconds"], again.event("plan")["rows"][3]["step_seconds"]);
  EXPECT_EQ(slow["limit"], "communication");
}

TEST_F(PlanCommand, PrintsATableThatFitsEightyColumns) {
  ASSERT_EQ(run_lockstep(kPlan + "--save-calibration " + file("calibration.json")).status, 0);
  write("large.json", R"({"name":"large machines","speed":10,"link":"25Gbit","memory":"64KiB"})");
  const Result result =
      run_lockstep("plan --calibration " + file("calibration.json") + " --price 1.5 --hardware " +
                   file("large.json") + " --scaling weak --link 100Mbit");
  ASSERT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("mlp on "), HasSubstr("global batch 32 times the replicas"),
                    HasSubstr("links of 100 Mbit/s, large machines"),
                    HasSubstr("! needs more than the 0.062 MiB of a replica"),
                    HasSubstr("every host computes 10 times as fast"), HasSubstr("weak scaling")));
  std::istringstream lines(result.output);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
}

TEST_F(PlanCommand, AcceptsOptionsOfTrain) {
  const Result result = run_lockstep(
      kPlan + "--replicas 1 --optimizer sgd --momentum 0.9 --lr 0.1 --checkpoint-dir " +
      file("run") + " --log-every 10");
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_FALSE(std::filesystem::exists(file("run")));
}

TEST_F(PlanCommand, RejectsInvalidOptionsInOneLine) {
  write("other.json", "{}");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {kPlan + "--link fast", "[link] expected the speed of a link, such as 1Gbit"},
      {kPlan + "--latency 3", "[latency] expected a time, such as 50us or 0.2ms, got \"3\""},
      {kPlan + "--replicas 0", "[replicas] expected numbers from 1 to 4096, such as 1,2,4-8"},
      {kPlan + "--scaling wek", "got \"wek\" (did you mean weak?)"},
      {kPlan + "--seconds 0", "expected --seconds to be from 1 to 86400, got 0"},
      {"plan --calibration " + file("other.json"),
       "expected a calibration of lockstep plan, got another JSON object"},
      {"plan --data synthetic:8x8x1,4,512", "expected --model NAME or --model FILE.json"}};
  for (const auto& [arguments, message] : cases) {
    const Result result = run_lockstep(arguments);
    EXPECT_EQ(result.status, 2) << arguments;
    EXPECT_THAT(result.errors, AllOf(HasSubstr("lockstep: error: ["), HasSubstr(message)));
    EXPECT_EQ(std::ranges::count(result.errors, '\n'), 1) << result.errors;
  }
}

TEST_F(PlanCommand, ChecksOutputFileBeforeMeasuring) {
  const Result result = run_lockstep(
      "plan --model mlp --data synthetic:8x8x1,4,512 --save-calibration /nowhere/calibration.json");
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.errors, HasSubstr("[/nowhere/calibration.json] expected"));
  EXPECT_THAT(result.errors, Not(HasSubstr("measuring")));
}

TEST(PlanOutput, ParsesReplicaCounts) {
  EXPECT_EQ(parse_replica_counts("4,1,2-3,2"), (std::vector<int>{1, 2, 3, 4}));
  for (const char* list : {"", "1,", "3-2", "a", "1-5000", "-1", "1--2"})
    EXPECT_THROW(parse_replica_counts(list), Error) << list;
}

}  // namespace
}  // namespace lockstep::inline v0::apps
