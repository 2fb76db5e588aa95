// `lockstep train --trace`: what the file has, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/strategy/trainer_options.h"
#include "tests/apps/training.h"
#include "tests/checkpoint/checkpoint_fixture.h"

namespace lockstep::apps {
namespace {

using checkpoint::ScratchDirectory;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

/// The slices of a trace in Chrome's format.
std::vector<nlohmann::json> slices_in(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::vector<nlohmann::json> slices;
  const nlohmann::json trace = nlohmann::json::parse(in);
  for (const nlohmann::json& event : trace.at("traceEvents"))
    if (event["ph"] == "X") slices.push_back(event);
  return slices;
}

TEST(Trace, HasThePartsOfTheStepsThatWereAskedFor) {
  const ScratchDirectory scratch;
  const std::filesystem::path file = scratch.path() / "trace.json";
  const std::string options = kTrain + "--steps 9 --data-threads 1 --checkpoint-dir " +
                              (scratch.path() / "run").string() + " --save-every 4";
  const Result result = run_lockstep(options + " --trace " + file.string() + ":steps=3-5");
  ASSERT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(result.errors, HasSubstr("trace of 3 steps on 1 rank: " + file.string()));
  std::set<std::string> names;
  std::set<int> steps;
  std::map<int, std::vector<std::pair<double, double>>> open;  // by thread
  for (const nlohmann::json& slice : slices_in(file)) {
    names.insert(slice["name"].get<std::string>());
    if (slice["name"] == "step") steps.insert(slice["args"]["step"].get<int>());
    const double begin = slice["ts"];
    const double end = begin + slice["dur"].get<double>();
    auto& around = open[slice["tid"].get<int>()];
    constexpr double kRounding = 0.002;  // microseconds
    while (!around.empty() && around.back().second <= begin + kRounding) around.pop_back();
    if (!around.empty()) {
      EXPECT_LE(end, around.back().second + kRounding) << slice;
    }
    if (end > begin) around.emplace_back(begin, end);
  }
  EXPECT_EQ(steps, (std::set<int>{3, 4, 5}));
  EXPECT_THAT(names, IsSupersetOf({"step", "input", "compute", "loss", "wait for reductions",
                                   "parameter update", "update", "saving", "read records"}));
  EXPECT_TRUE(std::ranges::any_of(
      names, [](const std::string& name) { return name.ends_with(" forward"); }));
  EXPECT_TRUE(std::ranges::any_of(
      names, [](const std::string& name) { return name.ends_with(" backward"); }));
}

TEST(Trace, ChangesNothingElse) {
  const ScratchDirectory scratch;
  const std::string train = kTrain + "--steps 6";
  const Result traced =
      run_lockstep(train + " --trace " + (scratch.path() / "trace.pftrace").string());
  ASSERT_EQ(traced.status, 0) << traced.errors;
  EXPECT_EQ(hash_of(traced), hash_of(run_lockstep(train)));
  EXPECT_GT(std::filesystem::file_size(scratch.path() / "trace.pftrace"), 1000U);
}

TEST(Trace, OfStepsThatAreNotReachedIsAWarning) {
  const ScratchDirectory scratch;
  const std::filesystem::path file = scratch.path() / "trace.json";
  const Result result =
      run_lockstep(kTrain + "--steps 3 --trace " + file.string() + ":steps=10-20");
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.errors, HasSubstr("no trace is written: this run had none of the steps"));
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST(Trace, OnAFullDiskIsLostAndTheTrainingEndsWithItsStatus) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "needs /dev/full";
  const Result result = run_lockstep(kTrain + "--steps 6 --trace /dev/full:steps=2-3");
  EXPECT_EQ(result.status, 3);
  EXPECT_EQ(result.event("end")["steps"], 6);
  EXPECT_THAT(result.errors, HasSubstr("the trace is lost; the training continues: [/dev/full]"));
}

TEST(Trace, ThatIsLostDoesNotHideThatTheTrainingDiverged) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "needs /dev/full";
  const ScratchDirectory scratch;
  const std::string table = (scratch.path() / "table.csv").string();
  std::ofstream(table) << "x,y\n1,1e30\n2,-1e30\n3,1e30\n4,1e30\n";
  const Result result = run_lockstep(
      "train --model linear --loss mean-squared-error --data csv:" + table +
      "?targets=y --global-batch 4 --optimizer sgd --epochs 20 --trace /dev/full:steps=2-3");
  EXPECT_EQ(result.status, 6);
  EXPECT_THAT(result.errors, HasSubstr("the trace is lost; the training continues: [/dev/full]"));
  EXPECT_THAT(result.errors, HasSubstr("got 20 skipped steps at the end"));
}

TEST(Trace, IsRefusedWhereItCannotBeWritten) {
  const Result result = run_lockstep(kTrain + "--steps 3 --trace /nowhere/trace.json");
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.errors, HasSubstr("[/nowhere/trace.json] expected"));
}

TEST(ParseTrace, AcceptsAFileAndSteps) {
  const auto expect = [](const char* text, const char* file, int first, int last) {
    const strategy::TraceOptions options = strategy::parse_trace(text);
    EXPECT_EQ(options.file, file) << text;
    EXPECT_EQ(options.first_step, first) << text;
    EXPECT_EQ(options.last_step, last) << text;
  };
  expect("t.json", "t.json", 1, 0);
  expect("t:steps=100-120", "t", 100, 120);
  expect("t:steps=7", "t", 7, 7);
  expect("t:steps=7-", "t", 7, 0);
  expect("t:steps=-7", "t", 1, 7);
}

TEST(ParseTrace, RefusesOtherTexts) {
  for (const char* text : {"", "-", ":steps=1-2", "t:steps=", "t:steps=-", "t:steps=0-3",
                           "t:steps=5-0", "t:steps=5-3", "t:steps=a-b", "t:steps=1-2-3"}) {
    try {
      strategy::parse_trace(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("[trace] expected FILE or FILE:steps=FIRST-LAST"));
    }
  }
}

}  // namespace
}  // namespace lockstep::apps
