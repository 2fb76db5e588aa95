// Signals at many times of a training: it saves and exits, continues, or ends, and its checkpoints
// remain intact.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <iterator>
#include <thread>

#include "tests/apps/program.h"
#include "tests/apps/training.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/paths.h"

namespace lockstep::inline v0::apps {
namespace {

using checkpoint::ScratchDirectory;
using ::testing::AnyOf;
using ::testing::HasSubstr;

/// The step of the last checkpoint that was announced; 0 for none.
std::int64_t reported_step(const Result& result) {
  std::int64_t step = 0;
  for (const auto& event : result.events())
    if (event["event"] == "checkpoint") step = event["step"];
  return step;
}

bool saves_and_exits(int signal) {
  return signal == SIGTERM || signal == SIGINT || signal == SIGHUP;
}

class StopSignal : public ::testing::TestWithParam<int> {
 protected:
  std::string directory() const { return scratch_.path() / "run"; }
  std::string train() const {
    return kTrain +
           "--validation-data synthetic:8x8x1,4,2000,test --save-every 4 --checkpoint-dir " +
           directory();
  }

  /// Expects that all checkpoints are intact, and that a training resumes from the reported one or
  /// a later one.
  void expect_sound(const Result& ended) const {
    const std::int64_t saved = reported_step(ended);
    const Result again = run_lockstep(fmt::format("{} --steps {}", train(), saved + 6));
    ASSERT_EQ(again.status, 0) << again.errors;
    EXPECT_GE(again.event("start")["first_step"], saved);
    const Result verified = run_lockstep("checkpoint verify " + directory());
    EXPECT_EQ(verified.status, 0) << verified.output << verified.errors;
  }

  const ScratchDirectory scratch_;
};

std::string name_of(const ::testing::TestParamInfo<int>& info) {
  return ::sigabbrev_np(info.param);
}

INSTANTIATE_TEST_SUITE_P(Signals, StopSignal,
                         ::testing::Values(SIGHUP, SIGTERM, SIGINT, SIGPIPE, SIGUSR1), name_of);

TEST_P(StopSignal, SavesAndExits) {
  const int signal = GetParam();
  Process process(lockstep(train() + " --epochs 1000000"));
  ASSERT_TRUE(process.wait_for(R"("event":"checkpoint","step":8)"));
  process.kill(signal);
  const bool goes_on = signal == SIGPIPE || signal == SIGUSR1;
  if (goes_on) {
    ASSERT_TRUE(process.wait_for(R"("event":"checkpoint","step":40)")) << "it goes on";
    process.kill(SIGTERM);
  }
  const Result result = process.finish();
  const int leaves_on = goes_on ? SIGTERM : signal;
  EXPECT_EQ(result.status, 128 + leaves_on) << result.errors;
  EXPECT_EQ(result.event("end")["signal"], leaves_on);
  EXPECT_EQ(result.event("end")["steps"], reported_step(result));
  EXPECT_EQ(std::filesystem::exists(directory() + "/recorder-0.jsonl"), signal == SIGUSR1);
  expect_sound(result);
}

/// Expects that a training under nohup, with these variables, ignores SIGHUP.
void expect_hangup_ignored(const std::string& variables) {
  Process process(
      {"/bin/sh", "-c",
       "trap '' HUP; " + variables + " exec " LOCKSTEP_PROGRAM " " + kTrain + "--epochs 1000000"});
  ASSERT_TRUE(process.wait_for(R"("step":3,)"));
  process.kill(SIGHUP);
  ASSERT_TRUE(process.wait_for(R"("event":"epoch","epoch":9)"));
  process.kill(SIGTERM);
  EXPECT_EQ(process.finish().status, 143);
}

TEST(StopOnHangup, IsIgnoredUnderNohup) { expect_hangup_ignored(""); }
TEST(StopOnHangup, IsIgnoredUnderNohupDespiteLibraryHandler) {
  expect_hangup_ignored("LD_PRELOAD=" LOCKSTEP_TAKES_HANGUP);
}

/// `lockstep ARGUMENTS`, which receives SIGUSR1 before its main function runs.
std::vector<std::string> requested_early(const std::string& arguments) {
  std::vector<std::string> words = {"env", "LD_PRELOAD=" LOCKSTEP_RAISES_SIGNAL,
                                    fmt::format("LOCKSTEP_TEST_SIGNAL={}", SIGUSR1)};
  std::ranges::copy(lockstep(arguments), std::back_inserter(words));
  return words;
}

TEST(RecordingRequest, DoesNotEndCommand) {
  for (const char* arguments : {"version", "train --help", "data inspect --help"})
    EXPECT_EQ(run(requested_early(arguments)).status, 0) << arguments;
  for (const char* arguments : {"evaluate", "predict", "generate", "quantize"})
    EXPECT_EQ(run(requested_early(arguments)).status, 2) << "required options are missing";
}

TEST(RecordingRequest, IsServedInSession) {
  const ScratchDirectory scratch;
  const std::string directory = (scratch.path() / "run").string();
  const Result trained = run(requested_early(kTrain + "--steps 5 --checkpoint-dir " + directory));
  EXPECT_EQ(trained.status, 0) << trained.errors;
  EXPECT_THAT(trained.errors, HasSubstr("the last events are in "));
  const Result evaluated =
      run(requested_early("evaluate --checkpoint " + directory + " --data synthetic:8x8x1,4,1003"));
  EXPECT_EQ(evaluated.status, 0) << evaluated.errors;
  EXPECT_THAT(evaluated.errors, HasSubstr("the last events are in "));
}

TEST(StopOnHangup, ReportsSignal) {
  Process process(lockstep("train --model mlp --epochs 1000000 --log-every 1" + kData));
  ASSERT_TRUE(process.wait_for(" 3/11000000 "));
  process.kill(SIGHUP);
  const Result result = process.finish();
  EXPECT_EQ(result.status, 129);
  EXPECT_THAT(result.output, HasSubstr(" on SIGHUP\n"));
}

TEST(StopOnInterrupt, ExplainsHowToStopImmediately) {
  const ScratchDirectory scratch;
  const std::string saves = " --checkpoint-dir " + (scratch.path() / "run").string();
  for (const auto& [arguments, notice] :
       {std::pair<std::string, std::string>{"", "lockstep: SIGINT: finishing the step; "},
        {saves, "lockstep: SIGINT: finishing the step, then saving; "},
        {"--quiet", ""}}) {
    Process process(lockstep(kTrain + "--epochs 1000000 " + arguments));
    ASSERT_TRUE(process.wait_for(R"("step":3,)"));
    process.kill(SIGINT);
    const Result result = process.finish();
    EXPECT_EQ(result.status, 130);
    EXPECT_EQ(result.errors, notice.empty() ? "" : notice + "Ctrl-C again stops at once\n");
  }
}

// The signal frame of the kernel must not overwrite memory that a matrix product of oneDNN uses as
// its stack.
TEST(StopOnHangup, ToleratesManySignals) {
  const std::string command = kTrain + "--epochs 60";
  Process process(lockstep(command));
  ASSERT_TRUE(process.wait_for(R"("event":"start")"));
  std::atomic<bool> ended = false;
  // The process ID is not reused before finish() has waited for it.
  std::thread sender([&] {
    while (!ended) process.kill(SIGPIPE);
  });
  const bool came_to_its_end = process.wait_for(R"("event":"end")");
  ended = true;
  sender.join();
  EXPECT_TRUE(came_to_its_end);
  const Result result = process.finish();
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_EQ(hash_of(result), hash_of(run_lockstep(command)));
}

/// Signals from the start of the process until after the end of a training of about a second.
class LongStopSignal : public StopSignal {};

INSTANTIATE_TEST_SUITE_P(Signals, LongStopSignal,
                         ::testing::Values(SIGHUP, SIGTERM, SIGINT, SIGPIPE, SIGUSR1), name_of);

TEST_P(LongStopSignal, SavesAndExitsAtAnyTime) {
  const int signal = GetParam();
  const std::string command = train() + " --epochs 12";
  const auto start = std::chrono::steady_clock::now();
  ASSERT_EQ(run_lockstep(command).status, 0);
  const auto whole = std::chrono::steady_clock::now() - start;
  constexpr int kMoments = 60;
  for (int moment = 0; moment < kMoments; ++moment) {
    SCOPED_TRACE(moment);
    std::filesystem::remove_all(directory());
    Process process(lockstep(command));
    std::this_thread::sleep_for(whole * moment / (kMoments - 5));  // the moment is the subject
    process.kill(signal);
    const Result result = process.finish();
    EXPECT_THAT(result.status, AnyOf(0, 128 + signal)) << result.errors;
    if (signal == SIGPIPE && result.status != 0) {
      EXPECT_EQ(reported_step(result), 0) << "before main takes the signal";
    }
    const bool has_end = !result.events().empty() && result.events().back()["event"] == "end";
    if (saves_and_exits(signal) && result.status != 0 && has_end) {
      EXPECT_EQ(reported_step(result), result.event("end")["steps"]);
    }
    expect_sound(result);
  }
}

}  // namespace
}  // namespace lockstep::inline v0::apps
