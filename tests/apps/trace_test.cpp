// `lockstep train --trace`: contents of the file, and errors.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/train/options/fit_options.h"
#include "tests/apps/training.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/data/support.h"
#include "tests/paths.h"

namespace lockstep::inline v0::apps {
namespace {

using checkpoint::ScratchDirectory;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::StartsWith;

/// The slices of a trace in Chrome's format.
std::vector<nlohmann::json> slices_in(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::vector<nlohmann::json> slices;
  const nlohmann::json trace = nlohmann::json::parse(in);
  for (const nlohmann::json& event : trace.at("traceEvents"))
    if (event["ph"] == "X") slices.push_back(event);
  return slices;
}

TEST(Trace, HasRequestedSteps) {
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

/// The names of the slices in the threads that read data.
std::set<std::string> input_stages(const std::filesystem::path& file) {
  std::ifstream in(file);
  const nlohmann::json trace = nlohmann::json::parse(in);
  std::set<int> readers;
  std::set<std::string> names;
  for (const nlohmann::json& event : trace.at("traceEvents"))
    if (event["name"] == "thread_name" &&
        event["args"]["name"].get<std::string>().starts_with("reading data"))
      readers.insert(event["tid"].get<int>());
  for (const nlohmann::json& event : trace.at("traceEvents"))
    if (event["ph"] == "X" && readers.contains(event["tid"].get<int>()))
      names.insert(event["name"].get<std::string>());
  return names;
}

TEST(Trace, HasInputStages) {
  const ScratchDirectory scratch;
  const std::filesystem::path file = scratch.path() / "trace.json";
  data::write_records(scratch.path() / "a.tfrecord",
                      std::vector(1003, data::image_record(1, 32 * 32 * 3, 7)));
  const std::string train = "train --model mlp --data " + (scratch.path() / "a.tfrecord").string() +
                            " --input-shape 32x32x3 --classes 4 --steps 9 --data-threads 1 ";
  const std::string trace = "--trace " + file.string() + ":steps=3-9";
  Result result = run_lockstep(train + "--global-batch 32 --images cifar10 " + trace);
  ASSERT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(input_stages(file), IsSupersetOf({"read records", "lay out batch",
                                                "wait for a free batch", "read", "augment"}));
  EXPECT_FALSE(input_stages(file).contains("more samples"));
  result = run_lockstep(train + "--global-batch 900 --images cifar10 " + trace);
  ASSERT_EQ(result.status, 0) << result.errors;
  EXPECT_TRUE(input_stages(file).contains("more samples"));
  EXPECT_THAT(result.errors, Not(HasSubstr("left out"))) << "no event was lost";
  result = run_lockstep(train + "--global-batch 32 " + trace);
  ASSERT_EQ(result.status, 0) << result.errors;
  EXPECT_TRUE(input_stages(file).contains("read records"));
  EXPECT_FALSE(input_stages(file).contains("read")) << "too short to be recorded";
}

TEST(Trace, IsWrittenIfTrainingFails) {
  const ScratchDirectory scratch;
  const std::filesystem::path file = scratch.path() / "trace.json";
  const Result result = run_lockstep(kTrain + "--learning-rate 1e38 --steps 200 --optimizer sgd " +
                                     "--trace " + file.string());
  ASSERT_EQ(result.status, 6) << result.errors;
  EXPECT_THAT(result.errors, HasSubstr("; the incomplete trace is in " + file.string() + "\n"));
  std::set<int> steps;
  for (const nlohmann::json& slice : slices_in(file))
    if (slice["name"] == "step") steps.insert(slice["args"]["step"].get<int>());
  EXPECT_TRUE(steps.contains(1));
  EXPECT_LT(steps.size(), 200U);
}

TEST(Trace, IsNotWrittenIfTrainingFailsBeforeSteps) {
  const ScratchDirectory scratch;
  const std::filesystem::path file = scratch.path() / "trace.json";
  const Result result = run_lockstep(kTrain + "--learning-rate 1e38 --steps 200 --optimizer sgd " +
                                     "--trace " + file.string() + ":steps=150-160");
  ASSERT_EQ(result.status, 6) << result.errors;
  EXPECT_THAT(result.errors, Not(HasSubstr("traced")));
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST(Trace, DoesNotChangeResult) {
  const ScratchDirectory scratch;
  const std::string train = kTrain + "--steps 6";
  const Result traced =
      run_lockstep(train + " --trace " + (scratch.path() / "trace.pftrace").string());
  ASSERT_EQ(traced.status, 0) << traced.errors;
  EXPECT_EQ(hash_of(traced), hash_of(run_lockstep(train)));
  EXPECT_GT(std::filesystem::file_size(scratch.path() / "trace.pftrace"), 1000U);
}

TEST(Trace, IsReadByPerfetto) {
  const char* const python = std::getenv("LOCKSTEP_VENV_PYTHON");
  if (python == nullptr)
    GTEST_SKIP() << "LOCKSTEP_VENV_PYTHON names no Python interpreter with perfetto";
  if (std::system(fmt::format("{} -c 'import perfetto' 2>/dev/null", python).c_str()) != 0)
    GTEST_SKIP() << python << " has no perfetto";
  const ScratchDirectory scratch;
  const std::string file = (scratch.path() / "trace.pftrace").string();
  const Result result = run_lockstep(kTrain + "--steps 9 --trace " + file + ":steps=3-5");
  ASSERT_EQ(result.status, 0) << result.errors;
  const std::string seen = (scratch.path() / "seen.json").string();
  ASSERT_EQ(std::system(fmt::format("{} {}/tests/apps/read_trace.py {} > {}", python,
                                    LOCKSTEP_SOURCE_DIR, file, seen)
                            .c_str()),
            0);
  const auto slices = nlohmann::json::parse(checkpoint::contents_of(seen));
  std::set<int> steps;
  std::map<std::string, std::set<int>> depths;  // depths on the main thread
  for (const nlohmann::json& slice : slices) {
    EXPECT_THAT(slice["process"].get<std::string>(), StartsWith("rank 0 on "));
    const std::string name = slice["name"];
    if (name == "step") steps.insert(slice["step"].get<int>());
    if (slice["thread"] == "main") depths[name].insert(slice["depth"].get<int>());
    EXPECT_GE(slice["dur"].get<std::int64_t>(), 0) << slice;
  }
  EXPECT_EQ(steps, (std::set<int>{3, 4, 5}));
  EXPECT_EQ(depths["step"], std::set<int>{0});
  EXPECT_EQ(depths["compute"], std::set<int>{1});
  EXPECT_EQ(depths["loss"], std::set<int>{2});
}

TEST(Trace, WarnsIfStepsAreNotReached) {
  const ScratchDirectory scratch;
  const std::filesystem::path file = scratch.path() / "trace.json";
  const Result result =
      run_lockstep(kTrain + "--steps 3 --trace " + file.string() + ":steps=10-20");
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.errors, HasSubstr("no trace is written: this run had none of the steps"));
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST(Trace, OnFullDiskKeepsStatusOfTraining) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "needs /dev/full";
  const Result result = run_lockstep(kTrain + "--steps 6 --trace /dev/full:steps=2-3");
  EXPECT_EQ(result.status, 3);
  EXPECT_EQ(result.event("end")["steps"], 6);
  EXPECT_THAT(result.errors, HasSubstr("the trace is lost; the training continues: [/dev/full]"));
}

TEST(Trace, LossDoesNotHideDivergence) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "needs /dev/full";
  const ScratchDirectory scratch;
  const std::string table = (scratch.path() / "table.csv").string();
  std::ofstream(table) << "x,y\n1,1e30\n2,-1e30\n3,1e30\n4,1e30\n";
  const Result result = run_lockstep(
      "train --model linear --loss mean-squared-error --data csv:" + table +
      ":targets=y --global-batch 4 --optimizer sgd --epochs 20 --trace /dev/full:steps=2-3");
  EXPECT_EQ(result.status, 6);
  EXPECT_THAT(result.errors, HasSubstr("the trace is lost; the training continues: [/dev/full]"));
  EXPECT_THAT(result.errors, HasSubstr("got 20 skipped steps at the end"));
}

TEST(Trace, RejectsUnwritableFile) {
  const Result result = run_lockstep(kTrain + "--steps 3 --trace /nowhere/trace.json");
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.errors, HasSubstr("[/nowhere/trace.json] expected"));
}

TEST(ParseTrace, AcceptsAFileAndSteps) {
  const auto expect = [](const char* text, const char* file, int first, int last) {
    const train::TraceOptions options = train::parse_trace(text);
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

TEST(ParseTrace, RejectsOtherTexts) {
  for (const char* text : {"", "-", ":steps=1-2", "t:steps=", "t:steps=-", "t:steps=0-3",
                           "t:steps=5-0", "t:steps=5-3", "t:steps=a-b", "t:steps=1-2-3"}) {
    try {
      train::parse_trace(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("[trace] expected "));
    }
  }
}

}  // namespace
}  // namespace lockstep::inline v0::apps
