// A training that diverges keeps its earlier checkpoints, ends with status 6, and can be resumed
// with a better learning rate.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "lockstep/checkpoint/directory.h"
#include "tests/apps/program.h"
#include "tests/checkpoint/checkpoint_fixture.h"

namespace lockstep::inline v0::apps {
namespace {

using ::testing::HasSubstr;

class Diverged : public ::testing::TestWithParam<std::string> {
 protected:
  std::string directory() const { return (scratch_.path() / "run").string(); }
  /// A training with the devices of this test and a common checkpoint directory.
  Result train(const std::string& options) const {
    return run_lockstep(
        "train --log-format json --data-threads 1 --optimizer sgd --save-every 5 --keep 3 "
        "--checkpoint-dir " +
        directory() + " " + GetParam() + " " + options);
  }
  checkpoint::ScratchDirectory scratch_;
};

TEST_P(Diverged, KeepsCheckpointsAndResumesWithBetterRate) {
  const std::string task = "--model mlp:8 --data synthetic:4x4x1,4,6400 --global-batch 16 ";
  const Result good = train(task + "--learning-rate 0.1 --steps 20");
  ASSERT_EQ(good.status, 0) << good.errors;
  const Result wild = train(task + "--learning-rate 1e38 --steps 200");
  EXPECT_EQ(wild.status, 6);
  EXPECT_THAT(
      wild.errors,
      HasSubstr("lockstep: error: [train] expected finite losses, gradients and parameters; try a "
                "lower learning rate, warm-up or clipping, got 100 skipped steps in a row"));
  EXPECT_THAT(wild.errors,
              HasSubstr("; the newest healthy checkpoint is " + directory() + "/step-00000020"));
  EXPECT_EQ(wild.event("end")["healthy"], false);
  EXPECT_EQ(wild.event("end")["skipped_steps"], 100);
  const Result again = train(task + "--learning-rate 0.1 --steps 330");
  EXPECT_EQ(again.status, 0) << again.errors;
  EXPECT_EQ(again.event("start")["first_step"], 20);
}

// The squares of the targets overflow float32.
TEST_P(Diverged, SavesNothingWithHugeTargets) {
  const std::string table = (scratch_.path() / "table.csv").string();
  std::ofstream(table) << "x,y\n1,1e30\n2,-1e30\n3,1e30\n4,1e30\n";
  const Result result = train("--model linear --loss mean-squared-error --data csv:" + table +
                              ":targets=y --global-batch 4 --learning-rate 0.1 --epochs 20");
  EXPECT_EQ(result.status, 6);
  EXPECT_THAT(result.errors, HasSubstr("got 20 skipped steps at the end"));
  EXPECT_EQ(result.event("epoch")["loss"], nullptr);
  for (const checkpoint::CheckpointInfo& info : checkpoint::list_checkpoints(directory()))
    EXPECT_FALSE(info.healthy);
}

INSTANTIATE_TEST_SUITE_P(On, Diverged, ::testing::Values("", "--devices cpu:0,cpu:0"),
                         [](const auto& test) {
                           return test.param.empty() ? "one_replica" : "two_replicas";
                         });

}  // namespace
}  // namespace lockstep::inline v0::apps
