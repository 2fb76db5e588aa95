// --validation-split and --test-split of train, and --split of evaluate.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/apps/saved.h"

namespace lockstep::inline v0::apps {
namespace {

using ::testing::HasSubstr;

class Split : public Saved {
 protected:
  /// A table of 60 rows of two classes.
  std::string table() const {
    const std::string path = directory("table.csv");
    std::ofstream file(path);
    file << "x,y,kind\n";
    for (int i = 0; i < 60; ++i)
      file << i % 13 << "," << 0.5 * (i % 7) << "," << (i % 3 == 0 ? "a" : "b") << "\n";
    return " --data csv:" + path;
  }
  std::string train() const {
    return "train --model mlp:4 --epochs 3 --global-batch 8 --json --checkpoint-dir " +
           directory() + table() + " --validation-split 0.2 --test-split 0.1 ";
  }
};

TEST_F(Split, EvaluatesWhatItHoldsOut) {
  const Result trained = run_lockstep(train());
  ASSERT_EQ(trained.status, 0) << trained.errors;
  const nlohmann::json start = trained.event("start");
  EXPECT_EQ(start["records"], 42);
  EXPECT_EQ(start["split"],
            (nlohmann::json{
                {"training", 42}, {"validation", 12}, {"test", 6}, {"stratified_by", "kind"}}));
  const nlohmann::json epoch = trained.event("epoch");
  EXPECT_EQ(epoch["validation_samples"], 12);
  const nlohmann::json end = trained.event("end");
  EXPECT_EQ(end["test_samples"], 6);
  const std::string evaluate =
      "evaluate --json --checkpoint " + directory() + table() + " --split ";
  const nlohmann::json test = run_lockstep(evaluate + "test").event("evaluate");
  EXPECT_EQ(test["samples"], 6);
  EXPECT_EQ(test["loss"], end["test_loss"]);
  EXPECT_EQ(test["accuracy"], end["test_accuracy"]);
  EXPECT_EQ(run_lockstep(evaluate + "validation").event("evaluate")["loss"],
            epoch["validation_loss"]);
  EXPECT_EQ(run_lockstep(evaluate + "training").event("evaluate")["samples"], 42);
  const nlohmann::json state =
      nlohmann::json::parse(std::ifstream(directory() + "/step-00000018/state.json"));
  EXPECT_EQ(state["configuration"]["split"],
            (nlohmann::json{{"validation", 0.2}, {"test", 0.1}, {"records", 60}}));
}

TEST_F(Split, IsTheSameOnAnyNumberOfReplicasAndOnResume) {
  const Result one = run_lockstep(train());
  const Result two = run_lockstep(train() + "--devices cpu:0,cpu:0 --checkpoint-dir none");
  EXPECT_NEAR(one.event("end")["test_loss"], two.event("end")["test_loss"], 1e-5);
  const Result resumed = run_lockstep(train() + "--epochs 5");
  const Result whole = run_lockstep(train() + "--epochs 5 --checkpoint-dir none");
  EXPECT_EQ(hash_of(resumed), hash_of(whole));
  EXPECT_EQ(resumed.event("end")["test_loss"], whole.event("end")["test_loss"]);
  const Result other = run_lockstep(train() + "--test-split 0.2 --epochs 6");
  EXPECT_EQ(other.status, 3);
  EXPECT_THAT(other.errors, HasSubstr("the training part of a split (validation 0.2, test 0.1)"));
}

TEST_F(Split, PrintsTheParts) {
  const Result trained = run_lockstep(
      "train --model mlp:4 --epochs 1 --checkpoint-dir none --test-split 0.5" + table());
  EXPECT_THAT(trained.output,
              HasSubstr("split: 30 training, 30 test records, stratified by kind\n"));
  EXPECT_THAT(trained.output, HasSubstr("test: loss "));
  EXPECT_THAT(trained.output, HasSubstr(" (30 records, at step 1)\n"));
}

TEST_F(Split, RefusesWhatContradictsIt) {
  const Result both = run_lockstep(train() + "--validation-data csv:" + directory("table.csv"));
  EXPECT_EQ(both.status, 2);
  EXPECT_THAT(both.errors, HasSubstr("expected --validation-data or --validation-split, got both"));
  EXPECT_EQ(run_lockstep(train() + "--validation-split 0.95").status, 2);
  const Result every = run_lockstep("train --model linear --validate-every 2" + table());
  EXPECT_THAT(every.errors,
              HasSubstr("expected --validation-data or --validation-split with --validate-every"));
  ASSERT_EQ(run_lockstep(train() + "--validation-split 0 --test-split 0").status, 0);
  const Result none =
      run_lockstep("evaluate --checkpoint " + directory() + table() + " --split test");
  EXPECT_EQ(none.status, 2);
  EXPECT_THAT(none.errors, HasSubstr("expected no --split for a model that was trained without"));
}

TEST_F(Split, RefusesAnotherTable) {
  ASSERT_EQ(run_lockstep(train()).status, 0);
  const std::string data = table();
  std::ofstream(directory("table.csv"), std::ios::app) << "1,2,a\n";
  const Result other = run_lockstep("evaluate --checkpoint " + directory() +
                                    " --data csv:" + directory("table.csv") + " --split test");
  EXPECT_EQ(other.status, 3);
  EXPECT_THAT(other.errors,
              HasSubstr("expected the data set of the training, 60 records, with --split, got 61"));
}

}  // namespace
}  // namespace lockstep::inline v0::apps
