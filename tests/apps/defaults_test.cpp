// What train does without --epochs, --steps and --learning-rate, and --autoencoder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/apps/saved.h"

namespace lockstep::inline v0::apps {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Defaults : public Saved {
 protected:
  /// A table of 40 rows of two classes.
  std::string table() const {
    const std::string path = directory("table.csv");
    std::ofstream file(path);
    file << "x,y,kind\n";
    for (int i = 0; i < 40; ++i)
      file << i % 13 << "," << 0.5 * (i % 7) << "," << (i * 37 % 11 < 5 ? "a" : "b") << "\n";
    return " --data csv:" + path;
  }
  /// A training whose events are in its output.
  std::string train(const std::string& model) const { return text(model) + "--json "; }
  std::string text(const std::string& model) const {
    return "train --checkpoint-dir " + directory() + " --model " + model + table() + " ";
  }
};

TEST_F(Defaults, FollowFromTheNumberOfRecords) {
  const Result trained = run_lockstep(train("linear"));
  ASSERT_EQ(trained.status, 0) << trained.errors;
  EXPECT_EQ(trained.event("end")["steps"], 200);
  EXPECT_NEAR(trained.event("start")["learning_rate"], 0.01, 1e-7);
  EXPECT_EQ(hash_of(run_lockstep(train("linear"))), hash_of(trained));  // nothing is left to do
  EXPECT_THAT(run_lockstep(text("linear") + "--checkpoint-dir none").output,
              HasSubstr("200 epochs; --epochs sets another length"));
}

TEST_F(Defaults, EndWhenTheValidationNoLongerImproves) {
  const std::string split = "--validation-split 0.2 --learning-rate 0.3";
  const Result trained = run_lockstep(train("mlp:8") + split);
  ASSERT_EQ(trained.status, 0) << trained.errors;
  EXPECT_LT(trained.event("end")["steps"].get<int>(), 1000);
  EXPECT_THAT(trained.event("end").value("stop_reason", ""),
              HasSubstr("validation_loss has not improved since step"));
  EXPECT_THAT(run_lockstep(text("mlp:8") + split + " --checkpoint-dir none").output,
              HasSubstr("at most 1000 epochs, until validation_loss has not improved for 20"));
}

TEST_F(Defaults, YieldToOptions) {
  const Result steps = run_lockstep(train("mlp:8") + "--steps 3 --validation-split 0.2");
  EXPECT_EQ(steps.event("end")["steps"], 3);
  EXPECT_NEAR(steps.event("start")["learning_rate"], 0.001, 1e-7);
  const std::string watched =
      "--checkpoint-dir none --optimizer sgd --validation-split 0.2 --validate-every 1 "
      "--early-stop validation_accuracy:patience=2";
  EXPECT_NEAR(run_lockstep(train("mlp:8") + watched).event("start")["learning_rate"], 0.01, 1e-7);
  EXPECT_THAT(run_lockstep(text("mlp:8") + watched).output,
              HasSubstr("until validation_accuracy has not improved for 2 validations"));
}

TEST_F(Defaults, AreThoseOfFineTuningFromOtherWeights) {
  ASSERT_EQ(run_lockstep(train("mlp:8") + "--steps 1").status, 0);
  const std::string tune = "train --json --checkpoint-dir none --steps 1 --model mlp:8" + table() +
                           " --init-from " + directory();
  EXPECT_NEAR(run_lockstep(tune).event("start")["learning_rate"], 0.0001, 1e-8);
  EXPECT_NEAR(run_lockstep(tune + " --freeze dense/kernel").event("start")["learning_rate"], 0.001,
              1e-8);
}

TEST_F(Defaults, LetAnAutoencoderReproduceItsInput) {
  const Result trained =
      run_lockstep(train("mlp:32") + "--autoencoder --validation-split 0.2 --learning-rate 0.03");
  ASSERT_EQ(trained.status, 0) << trained.errors;
  EXPECT_LT(trained.events().back()["validation_loss"], 0.1);
  // Evaluations know that the training was one of an autoencoder.
  const Result evaluated = run_lockstep("evaluate --json --split validation --checkpoint " +
                                        directory() + ":best" + table());
  ASSERT_EQ(evaluated.status, 0) << evaluated.errors;
  EXPECT_LT(evaluated.event("evaluate")["loss"], 0.1);
  std::ofstream(directory("new.csv")) << "x,y\n3,1\n";
  const Result predicted = run_lockstep("predict --quiet --output - --checkpoint " + directory() +
                                        " --data csv:" + directory("new.csv"));
  EXPECT_THAT(predicted.output, ::testing::StartsWith("record,x,y\n0,"));
}

}  // namespace
}  // namespace lockstep::inline v0::apps
