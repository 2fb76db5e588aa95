#include "apps/lockstep/report/run_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/apps/report/logs.h"

namespace lockstep::inline v0::apps::report {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

TEST(RunLog, HasCurvesTimesAndEnd) {
  const RunLog log = log_of(start_event() + step_event(10, 2) + step_event(20, 1) +
                            epoch_event(20, 0.5) + end_event(20));
  EXPECT_EQ(log.name, "run");
  EXPECT_EQ(log.text("model"), "mlp");
  EXPECT_EQ(log.number("world_size"), 2);
  EXPECT_EQ(log.steps, 20);
  EXPECT_DOUBLE_EQ(log.seconds, 21) << "from the start of the program";
  ASSERT_EQ(log.step_values.at("loss").bins().size(), 2U);
  EXPECT_EQ(log.step_values.at("loss").bins()[1].first_seconds, 21);
  EXPECT_FALSE(log.step_values.contains("step"));
  ASSERT_EQ(log.epoch_values.at("validation_accuracy").size(), 1U);
  EXPECT_EQ(log.epoch_values.at("validation_accuracy")[0].step, 20);
  EXPECT_EQ(log.status(), "finished");
  EXPECT_TRUE(log.is_finished());
  EXPECT_FALSE(log.is_cut_off);
  EXPECT_EQ(log.damaged_lines, 0);
}

TEST(RunLog, AcceptsIncompleteLastLine) {
  const std::string text = start_event() + step_event(10, 2);
  const RunLog whole = log_of(text);
  EXPECT_EQ(whole.status(), "still running, or killed");
  EXPECT_FALSE(whole.is_cut_off);
  for (std::size_t cut = 1; cut < 20; ++cut) {
    const RunLog log = log_of(text + step_event(20, 1).substr(0, cut));
    EXPECT_TRUE(log.is_cut_off) << cut;
    EXPECT_EQ(log.steps, 10);
  }
  std::string last = step_event(20, 1);
  last.pop_back();
  EXPECT_EQ(log_of(text + last).steps, 20) << "only the end of the line is missing";
}

TEST(RunLog, HasStatus) {
  EXPECT_EQ(log_of(start_event() + end_event(5, R"("signal":15,)")).status(),
            "stopped by signal 15");
  EXPECT_EQ(log_of(start_event() + end_event(5, R"("stopped":true,)")).status(), "stopped early");
  EXPECT_EQ(
      log_of(start_event() + "{\"event\":\"end\",\"steps\":5,\"healthy\":false,\"time\":105}\n")
          .status(),
      "diverged");
}

TEST(RunLog, CountsDamagedLines) {
  const RunLog log = log_of(start_event() + "Warning: something\n[1]\n\n{\"a\":1}\n" +
                            std::string(100, '[') + "\n" + step_event(10, 2));
  EXPECT_EQ(log.damaged_lines, 4);
  EXPECT_EQ(log.first_damaged, 2);
  EXPECT_EQ(log.steps, 10);
}

TEST(RunLog, IgnoresMembersOfOtherTypes) {
  const RunLog log = log_of(
      "{\"event\":\"start\",\"devices\":7,\"nodes\":\"x\",\"first_step\":-1e300,\"time\":[],"
      "\"start_seconds\":1e300}\n"
      "{\"event\":\"step\",\"step\":1e300,\"loss\":null,\"breakdown\":[],\"skipped\":1,"
      "\"replica_compute_ms\":[1,\"x\"],\"replica_input_ms\":[1],\"time\":1e300}\n"
      "{\"event\":\"epoch\",\"bad_records\":[1,{\"file\":2}],\"complete\":\"no\"}\n"
      "{\"event\":\"checkpoint\"}\n{\"event\":\"scalar\"}\n{\"event\":5}\n"
      "{\"event\":\"end\",\"steps\":\"x\",\"signal\":\"x\"}\n");
  EXPECT_EQ(log.damaged_lines, 0);
  EXPECT_TRUE(log.replicas.empty());
  EXPECT_LE(log.seconds, 1e10);
  EXPECT_GE(log.steps, 0);
}

TEST(RunLog, ReplacesRepeatedSteps) {
  const RunLog log =
      log_of(start_event() + step_event(10, 4) + step_event(20, 3) + epoch_event(20, 0.3) +
             R"({"event":"start","first_step":10,"restored_from":"ck/10","time":200})" + "\n" +
             R"({"event":"step","step":20,"loss":2,"time":205})" + "\n");
  EXPECT_EQ(log.runs, 2);
  ASSERT_EQ(log.step_values.at("loss").bins().size(), 2U);
  EXPECT_EQ(log.step_values.at("loss").bins()[1].mean(), 2);
  EXPECT_TRUE(log.epoch_values.at("validation_accuracy").empty());
  EXPECT_DOUBLE_EQ(log.seconds, 26) << "without the time between both";
  EXPECT_EQ(log.occurrences.back().text, "resumed from ck/10");
  EXPECT_EQ(log.text("model"), "mlp") << "of the first run";
  EXPECT_EQ(log.number("world_size"), 2);
  EXPECT_EQ(log.last_number("world_size"), 0) << "of the second";
}

TEST(RunLog, ReadsBreakdownVerdictAndReplicas) {
  const auto more = [](const char* bound, double input) {
    return fmt::format(
        R"("breakdown":{{"input":{},"compute":0.5}},"bound_by":"{}","verdict":"of {}",)"
        R"("replica_input_ms":[1,2],"replica_compute_ms":[10,20],"replica_waiting_ms":[11,0],)",
        input, bound, bound);
  };
  const RunLog log =
      log_of(start_event() + step_event(10, 2, more("input", 0.1)) +
             step_event(20, 2, more("compute", 0.3)) + step_event(30, 2, more("compute", 0.2)));
  EXPECT_NEAR(log.breakdown.at("input").mean(), 0.2, 1e-9);
  EXPECT_EQ(log.bound_by.at("compute"), 2);
  EXPECT_EQ(log.verdict, "of compute");
  ASSERT_EQ(log.replicas.size(), 2U);
  EXPECT_EQ(log.replicas[1].input, 2);
  EXPECT_EQ(log.replicas[0].waiting, 11);
  EXPECT_EQ(log.replica_busy[1].mean(), 22);
  EXPECT_EQ(log.occurrences.back().text, "bound by compute");
  EXPECT_EQ(log.occurrences.back().step, 20) << "where it changed";
}

TEST(RunLog, LimitsVerdictChanges) {
  std::string text = start_event();
  for (int step = 1; step <= 1000; ++step)
    text +=
        step_event(step, 1, step % 2 == 0 ? R"("bound_by":"input",)" : R"("bound_by":"memory",)");
  const RunLog log = log_of(text + end_event(1000));
  EXPECT_EQ(log.occurrences.back().text, "finished");
  EXPECT_EQ(log.occurrences_left_out, 900);
  EXPECT_EQ(log.bound_by.at("input"), 500);
}

TEST(RunLog, UsesBreakdownOfEpochsWithoutSteps) {
  const auto more = [](double input) {
    return fmt::format(R"("breakdown":{{"input":{}}},"bound_by":"input","verdict":"v",)", input);
  };
  const RunLog epochs =
      log_of(start_event() + epoch_event(10, 0.5, more(0.1)) + epoch_event(20, 0.5, more(0.3)));
  EXPECT_NEAR(epochs.breakdown.at("input").mean(), 0.2, 1e-9);
  EXPECT_EQ(epochs.bound_by.at("input"), 2);
  EXPECT_EQ(epochs.verdict, "v");
  const RunLog both =
      log_of(start_event() + step_event(5, 1, more(0.5)) + epoch_event(10, 0.5, more(0.1)));
  EXPECT_NEAR(both.breakdown.at("input").mean(), 0.5, 1e-9) << "that of the steps alone";
  EXPECT_EQ(both.bound_by.at("input"), 1);
}

TEST(RunLog, IgnoresTrainingMetricsOfIncompleteEpoch) {
  const RunLog log = log_of(start_event() +
                            R"({"event":"epoch","step":5,"complete":false,"loss":1,)"
                            R"("validation_loss":2,"time":105})" +
                            "\n");
  EXPECT_FALSE(log.epoch_values.contains("loss"));
  EXPECT_TRUE(log.epoch_values.contains("validation_loss"));
}

TEST(RunLog, UsesBreakdownOfEpochsIfThereAreMoreOfThem) {
  const std::string step = R"("breakdown":{"compute":1},"bound_by":"compute",)";
  const std::string epoch = R"("breakdown":{"compute":2},"bound_by":"input",)";
  const RunLog log = log_of(start_event() + epoch_event(5, 0.1, epoch) + step_event(6, 1, step) +
                            epoch_event(10, 0.2, epoch));
  EXPECT_EQ(log.breakdown.at("compute").points(), 2);
  EXPECT_EQ(log.breakdown.at("compute").mean(), 2);
  EXPECT_EQ(log.bound_by.at("compute"), 1);
}

TEST(RunLog, SaysThatNothingWasTrained) {
  const RunLog log = log_of(start_event() + end_event(40, R"("nothing_trained":"why",)"));
  EXPECT_EQ(log.status(), "nothing trained: it had ended");
}

TEST(ReadRuns, FindsLogsInDirectory) {
  const data::TemporaryDirectory directory;
  EXPECT_THAT(refusal_of([&] { read_runs(directory.path()); }), EndsWith("there is none"));
  data::write_bytes(directory / "recorder-0.jsonl", "{\"kind\":1}\n");
  data::write_bytes(directory / "a.jsonl", start_event() + step_event(10, 2));
  const std::vector<RunLog> one = read_runs(directory.path());
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(one[0].path, directory / "a.jsonl");
  EXPECT_EQ(one[0].name, directory.path().filename().string());
  data::write_bytes(directory / "b.json", start_event());
  const std::vector<RunLog> two = read_runs(directory.path());
  ASSERT_EQ(two.size(), 2U);
  EXPECT_EQ(two[0].name, "a");
  EXPECT_EQ(two[1].name, "b");
}

TEST(ReadRuns, FindsLogsOfASweep) {
  const data::TemporaryDirectory directory;
  for (const char* run : {"slow", "fast"}) {
    std::filesystem::create_directory(directory / run);
    data::write_bytes(directory / run / "events.jsonl", start_event());
  }
  const std::vector<RunLog> runs = read_runs(directory.path());
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_EQ(runs[0].name, "fast");
  EXPECT_EQ(runs[1].name, "slow");
}

TEST(ReadRuns, RejectsOtherFiles) {
  const data::TemporaryDirectory directory;
  data::write_bytes(directory / "empty", "");
  data::write_bytes(directory / "text", "epoch step loss\n");
  EXPECT_THAT(refusal_of([&] { read_runs(directory / "empty"); }),
              HasSubstr("] expected the events of a training (lockstep train --events run.jsonl); "
                        "the file is empty"));
  EXPECT_THAT(refusal_of([&] { read_runs(directory / "text"); }),
              HasSubstr("; none of its lines is an event"));
  EXPECT_THAT(refusal_of([&] { read_runs(directory / "none"); }),
              HasSubstr("No such file or directory"));
  EXPECT_THAT(refusal_of([&] { read_runs("/dev/null"); }), HasSubstr("/dev/null] expected "));
}

}  // namespace
}  // namespace lockstep::inline v0::apps::report
