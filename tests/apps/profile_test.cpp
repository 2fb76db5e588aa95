// `lockstep train --profile`: contents of the file, the printed table, and unchanged results.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "tests/apps/program.h"
#include "tests/apps/training.h"
#include "tests/checkpoint/checkpoint_fixture.h"

namespace lockstep::inline v0::apps {
namespace {

using checkpoint::ScratchDirectory;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

std::vector<nlohmann::json> profile_in(const std::filesystem::path& file) {
  std::vector<nlohmann::json> lines;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

std::vector<std::string> profiled_names(const std::vector<nlohmann::json>& lines) {
  std::vector<std::string> names;
  for (const nlohmann::json& line : lines) names.push_back(line["name"]);
  return names;
}

/// The last line is the whole step: its work is the sum of the others.
void expect_sound_profile(const std::vector<nlohmann::json>& lines) {
  ASSERT_GT(lines.size(), 1U);
  std::int64_t bytes = 0;
  std::int64_t flop = 0;
  double floor = 0;
  for (const nlohmann::json& line : lines) {
    EXPECT_GT(line["ms"], 0) << line;
    EXPECT_GE(line["floor_ms"], 0) << line;
    EXPECT_NEAR(line["share"], line["floor_ms"].get<double>() / line["ms"].get<double>(), 1e-9);
    if (line == lines.back()) break;
    EXPECT_EQ(line.size(), line.contains("algorithm") ? 7U : 6U) << line;
    bytes += line["bytes"].get<std::int64_t>();
    flop += line["flop"].get<std::int64_t>();
    floor += line["floor_ms"].get<double>();
  }
  const nlohmann::json& step = lines.back();
  EXPECT_EQ(step["name"], "step");
  EXPECT_EQ(step["bytes"], bytes);
  EXPECT_EQ(step["flop"], flop);
  EXPECT_NEAR(step["floor_ms"], floor, 1e-9);
  EXPECT_GT(step["bytes_per_second"], 0);
  EXPECT_GT(step["flop_per_second"], 0);
}

// 11 steps of 100 samples, the last one of 3: five are measured.
TEST(Profile, HasLinePerOperation) {
  const ScratchDirectory directory;
  const std::string file = directory.path() / "profile.jsonl";
  const Result result = run_lockstep(kTrain + "--epochs 1 --profile " + file);
  ASSERT_EQ(result.status, 0) << result.errors;
  EXPECT_EQ(hash_of(result), hash_of(run_lockstep(kTrain + "--epochs 1")));
  const std::vector<nlohmann::json> lines = profile_in(file);
  EXPECT_THAT(
      profiled_names(lines),
      ElementsAre("input", "dense forward", "dense_1 forward", "dense_2 forward", "loss",
                  "dense_2 weight gradient", "dense_2 data gradient", "dense_1 weight gradient",
                  "dense_1 data gradient", "dense weight gradient", "reduction", "update", "step"));
  expect_sound_profile(lines);
  // x [100, 64], kernel [128, 64], bias [128], y [100, 128]
  EXPECT_EQ(lines[1]["bytes"], 4 * (100 * 64 + 128 * 64 + 128 + 100 * 128));
  EXPECT_EQ(lines[1]["flop"], 2 * 100 * 64 * 128);
  // Adam reads the gradient, and reads and writes the parameters and two moments.
  constexpr std::int64_t kParameters = 128 * (64 + 1) + 128 * (128 + 1) + 4 * (128 + 1);
  EXPECT_EQ(lines[11]["bytes"], 7 * 4 * kParameters);
  EXPECT_EQ(lines.back()["steps"], 5);
  EXPECT_EQ(lines.back()["samples"], 100);
}

TEST(Profile, CoversFirstReplica) {
  const ScratchDirectory directory;
  const std::string file = directory.path() / "profile.jsonl";
  const std::string train =
      "train --model cnn --epochs 1 --log-format json --data synthetic:12x12x1,4,120 "
      "--global-batch 20 "
      "--epochs 2 --devices cpu:0,cpu:0 ";
  const Result result = run_lockstep(train + "--profile " + file);
  ASSERT_EQ(result.status, 0) << result.errors;
  EXPECT_EQ(hash_of(result), hash_of(run_lockstep(train)));
  const std::vector<nlohmann::json> lines = profile_in(file);
  expect_sound_profile(lines);
  EXPECT_EQ(lines.back()["samples"], 10);
  EXPECT_EQ(lines.back()["steps"], 7);
  EXPECT_THAT(
      profiled_names(lines),
      IsSupersetOf({"conv2d forward", "max_pool2d forward", "conv2d_1 forward",
                    "max_pool2d_1 forward", "dense forward", "dense_1 forward",
                    "dense_1 weight gradient", "dense_1 data gradient", "dense weight gradient",
                    "dense data gradient", "max_pool2d_1 backward", "conv2d_1 weight gradient",
                    "conv2d_1 data gradient", "max_pool2d backward", "conv2d weight gradient"}));
  const auto second = std::ranges::find_if(
      lines, [](const nlohmann::json& line) { return line["name"] == "conv2d_1 forward"; });
  ASSERT_NE(second, lines.end());
  EXPECT_EQ((*second)["flop"], 2 * 10 * 3 * 3 * 64 * (3 * 3 * 32)) << "[5, 5, 32] to [3, 3, 64]";
}

TEST(Profile, NamesAlgorithms) {
  const ScratchDirectory directory;
  const std::string file = directory.path() / "profile.jsonl";
  const Result result = run_lockstep(
      "train --model resnet18 --epochs 1 --data synthetic:32x32x3,4,28 --global-batch 4 --quiet "
      "--profile " +
      file);
  ASSERT_EQ(result.status, 0) << result.errors;
  std::vector<std::string> by_winograd;
  for (const nlohmann::json& line : profile_in(file))
    if (line.value("algorithm", "") == "winograd") by_winograd.push_back(line["name"]);
  EXPECT_THAT(by_winograd, IsSupersetOf({"layer1.0.conv1 forward", "layer1.0.conv1 weight gradient",
                                         "layer1.0.conv1 data gradient"}));
  EXPECT_THAT(by_winograd, Not(Contains("conv1 forward"))) << "of three channels";
  EXPECT_THAT(by_winograd, Not(Contains("layer2.0.conv1 forward"))) << "with stride 2";
}

TEST(Profile, PrintsTable) {
  const ScratchDirectory directory;
  const std::string train = "train --model mlp --epochs 1" + kData + "--profile ";
  const Result result = run_lockstep(train + (directory.path() / "profile.jsonl").string());
  ASSERT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(
      result.output,
      ContainsRegex("\nprofile of 5 steps of 100 samples, medians, the longest of 12 pieces:\n"
                    " +ms  of step   floor ms  of floor\n"
                    "([a-z_0-9 ]+ +[0-9.]+ +[0-9.]+ % +[0-9.]+( +[0-9]+ %| +)\n){10}"
                    "step +[0-9.]+  100.0 % +[0-9.]+ +[0-9]+ %\n11 steps, "));
}

TEST(Profile, FailsAtEndIfUnwritable) {
  const Result result = run_lockstep(kTrain + "--epochs 1 --profile /dev/full");
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.errors, HasSubstr("[/dev/full] expected to write the file; No space left"));
  EXPECT_EQ(result.event("end")["steps"], 11);
}

TEST(Profile, FailureDoesNotHideDivergence) {
  const Result result =
      run_lockstep(kTrain + "--epochs 1 --optimizer sgd --learning-rate 1e30 --profile /dev/full");
  EXPECT_EQ(result.status, 6);
  EXPECT_THAT(result.errors, HasSubstr("[/dev/full] expected to write the file; No space left"));
}

}  // namespace
}  // namespace lockstep::inline v0::apps
