// The default directory of a training, and the last lines of its output.
#include "apps/lockstep/train/run_directory.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <string>

#include "lockstep/checkpoint/directory.h"
#include "tests/apps/training.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/paths.h"

namespace lockstep::inline v0::apps {
namespace {

namespace fs = std::filesystem;
using checkpoint::names_in;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(NetworkName, OmitsPathOptionsAndExtension) {
  EXPECT_EQ(network_name("cnn"), "cnn");
  EXPECT_EQ(network_name("mlp:100,50"), "mlp");
  EXPECT_EQ(network_name("mobilenet_v2:0.25"), "mobilenet_v2");
  EXPECT_EQ(network_name("nets/net.json"), "net");
  EXPECT_EQ(network_name("/a/b.c/net.v2.onnx"), "net.v2");
  EXPECT_EQ(network_name("net.pt"), "net");
  EXPECT_EQ(network_name("step.json"), "model") << "step-1 is the name of a checkpoint";
}

/// Trainings in a temporary working directory.
class DefaultRunDirectory : public ::testing::Test {
 protected:
  std::vector<std::string> train(const std::string& options) const {
    return {"sh", "-c",
            fmt::format("cd {} && exec {} train --model mlp:8 {} {}", scratch_.path().string(),
                        LOCKSTEP_PROGRAM, kData, options)};
  }
  fs::path at(const std::string& name) const { return scratch_.path() / name; }
  const checkpoint::CheckpointInfo best_in(const std::string& name) const {
    const auto found = checkpoint::list_checkpoints(at(name));
    const auto* const best = checkpoint::find_best(found);
    return best == nullptr ? checkpoint::CheckpointInfo{} : *best;
  }

  checkpoint::ScratchDirectory scratch_;
};

TEST_F(DefaultRunDirectory, IsNextFreeNumber) {
  const Result first = run(train("--epochs 3"));
  EXPECT_EQ(first.status, 0) << first.errors;
  EXPECT_THAT(first.output, EndsWith("\nthe model is in runs/mlp-1/step-00000033\nnext: lockstep "
                                     "evaluate --checkpoint runs/mlp-1 --data DATA\n"));
  EXPECT_THAT(names_in(at("runs/mlp-1")), ElementsAre("step-00000033")) << "one save";
  const Result second = run(train("--epochs 3 --save-every 10 --json"));
  EXPECT_EQ(second.event("start")["run"], "mlp-2");
  EXPECT_EQ(second.event("checkpoint")["path"], "runs/mlp-2/step-00000033");
  EXPECT_THAT(names_in(at("runs/mlp-2")),
              ElementsAre("step-00000020", "step-00000030", "step-00000033"));
  EXPECT_THAT(second.errors, Not(HasSubstr("continues it"))) << "the first one is finished";
  fs::remove_all(at("runs/mlp-1"));
  EXPECT_EQ(run(train("--epochs 1 --json")).event("start")["run"], "mlp-3") << "in order of time";
}

TEST_F(DefaultRunDirectory, KeepsBestValidation) {
  const std::string validation = "--epochs 3 --validation-data synthetic:8x8x1,4,500,test ";
  const Result result = run(train(validation));
  ASSERT_EQ(result.status, 0) << result.errors;
  const checkpoint::CheckpointInfo best = best_in("runs/mlp-1");
  ASSERT_TRUE(best.best);
  EXPECT_EQ(best.best->metric, "validation_accuracy");
  const std::string next = "lockstep evaluate --checkpoint runs/mlp-1:best --data ";
  EXPECT_THAT(result.output, EndsWith("\nnext: " + next + "DATA\n"));
  EXPECT_THAT(result.output,
              HasSubstr(fmt::format("(validation_accuracy {:.6g})\n", best.best->value)));
  const Result evaluated =
      run({"sh", "-c",
           fmt::format("cd {} && PATH={}:$PATH && {}", scratch_.path().string(),
                       fs::path(LOCKSTEP_PROGRAM).parent_path().string(),
                       next + "synthetic:8x8x1,4,500,test")});
  EXPECT_EQ(evaluated.status, 0) << evaluated.errors;
  EXPECT_THAT(evaluated.output, HasSubstr(fmt::format(" accuracy {:.4f}", best.best->value)));

  ASSERT_EQ(run(train(validation + "--early-stop validation_loss")).status, 0);
  EXPECT_EQ(best_in("runs/mlp-2").best->metric, "validation_loss") << "that is watched";
  ASSERT_EQ(run(train(validation + "--keep-best none")).status, 0);
  EXPECT_FALSE(best_in("runs/mlp-3").best);
}

TEST_F(DefaultRunDirectory, IsMentionedUntilStoppedTrainingContinues) {
  const std::string endless = "--epochs 1000000 --log-every 1";
  const auto stop = [&](const std::string& options) {
    Process process(train(options));
    EXPECT_TRUE(process.wait_for(" 3/"));
    process.kill(SIGTERM);
    return process.finish();
  };
  const Result first = stop(endless);
  EXPECT_EQ(first.status, 128 + SIGTERM) << first.errors;
  EXPECT_THAT(first.output,
              EndsWith("\nto continue: the same command with --checkpoint-dir runs/mlp-1\n"));
  const auto stopped = checkpoint::list_checkpoints(at("runs/mlp-1"));
  ASSERT_EQ(stopped.size(), 1U);
  const std::string mention = fmt::format(
      "lockstep: runs/mlp-1 has a training with the same options that has not ended, saved at step "
      "{}: --checkpoint-dir runs/mlp-1 continues it, unless it is still running\n",
      stopped.front().step);
  EXPECT_THAT(run(train("--epochs 1")).errors, Not(HasSubstr("continues it")))
      << "with other options";
  EXPECT_THAT(stop(endless + " --verbose").errors, HasSubstr(mention));
}

TEST_F(DefaultRunDirectory, EndsTrainingIfNotCreatable) {
  checkpoint::overwrite(at("runs"), "a file");
  const Result result = run(train("--epochs 1"));
  EXPECT_EQ(result.status, 3);
  EXPECT_EQ(result.output, "");
  EXPECT_EQ(result.errors,
            "lockstep: error: [runs] expected to create a directory for the checkpoints of this "
            "training; --checkpoint-dir DIR names another place, and --checkpoint-dir none trains "
            "without saving; Not a directory\n");
  EXPECT_EQ(run(train("--epochs 1 --checkpoint-dir none")).status, 0);
}

TEST_F(DefaultRunDirectory, IsNotCreatedIfDeclined) {
  const Result result = run(train("--epochs 1 --checkpoint-dir none"));
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(result.output, EndsWith("\nnothing was saved (--checkpoint-dir none)\n"));
  EXPECT_FALSE(fs::exists(at("runs")));
}

TEST_F(DefaultRunDirectory, IsRemovedIfTrainingDoesNotStart) {
  const Result result = run(train("--validation-data synthetic:9x9x1,4,10"));
  EXPECT_EQ(result.status, 3) << result.errors;
  EXPECT_TRUE(fs::is_empty(at("runs")));
}

TEST_F(DefaultRunDirectory, BestIsMentionedByCommandsThatUseNewest) {
  ASSERT_EQ(run(train("--epochs 3 --keep-best loss:max")).status, 0);
  const std::string checkpoint = at("runs/mlp-1");
  const std::string mention = fmt::format(
      "lockstep: {0}/step-00000033 is the newest checkpoint; the best one, with loss {1:.6g}, is "
      "step-00000011: {0}:best\n",
      checkpoint, best_in("runs/mlp-1").best->value);
  const std::string data = " --data synthetic:8x8x1,4,50 ";
  const std::string onnx = at("m.onnx");
  for (const std::string& command :
       {"evaluate" + data + "--checkpoint ",
        "predict" + data + "--output " + at("p.csv").string() + " --checkpoint ",
        "quantize" + data + "--output " + onnx + " --checkpoint ",
        "checkpoint export --output " + onnx + " ",
        "train --steps 1 --model mlp:8" + data + "--init-from "}) {
    const Result newest = run_lockstep(command + checkpoint);
    EXPECT_EQ(newest.status, 0) << command << newest.errors;
    EXPECT_THAT(newest.errors, HasSubstr(mention)) << command;
    EXPECT_THAT(run_lockstep(command + checkpoint + ":best").errors, Not(HasSubstr("best one")))
        << command;
  }
}

}  // namespace
}  // namespace lockstep::inline v0::apps
