// What train does without --epochs, --steps and --learning-rate, and --autoencoder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/data/image/encode_png.h"
#include "tests/apps/saved.h"
#include "tests/data/support.h"

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
  std::string train(const std::string& model, const std::string& options = "") const {
    return text(model, options) + "--json ";
  }
  std::string text(const std::string& model, const std::string& options = "") const {
    return "train --checkpoint-dir " + directory() + " --model " + model + table() + options + " ";
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
  for (const std::string options : {":label=kind", ":drop=kind"}) {  // labels are not needed
    const Result trained = run_lockstep(train("mlp:32", options) +
                                        "--autoencoder --validation-split 0.2 --steps 300 "
                                        "--learning-rate 0.03 --resume never --overwrite");
    ASSERT_EQ(trained.status, 0) << trained.errors;
    // Evaluations know that the training was one of an autoencoder.
    const Result evaluated = run_lockstep("evaluate --json --split validation --checkpoint " +
                                          directory() + ":best" + table());
    ASSERT_EQ(evaluated.status, 0) << evaluated.errors;
    EXPECT_LT(evaluated.event("evaluate")["loss"], 0.1);  // the inputs are standardized
    std::ofstream(directory("new.csv")) << "x,y\n3,1\n";
    const Result predicted = run_lockstep("predict --quiet --output - --checkpoint " + directory() +
                                          " --data csv:" + directory("new.csv"));
    EXPECT_THAT(predicted.output, ::testing::StartsWith("record,x,y\n0,"));
  }
}

TEST_F(Defaults, LetAnAutoencoderReproduceResizedImages) {
  data::Image gray;
  gray.reshape(2, 2, 1);
  std::ranges::fill_n(gray.span().pixels, 4, 7);
  for (const char* const file : {"images/a/1.png", "images/a/2.png", "images/b/1.png"}) {
    std::filesystem::create_directories(std::filesystem::path(directory(file)).parent_path());
    data::write_bytes(directory(file), data::to_png(gray.view()));
  }
  const std::string data = " --data " + directory("images");
  const Result trained =
      run_lockstep("train --model mlp:2 --autoencoder --image-size 4 --steps 1 " + data +
                   " --checkpoint-dir " + directory());
  ASSERT_EQ(trained.status, 0) << trained.errors;
  EXPECT_EQ(run_lockstep("evaluate --checkpoint " + directory() + data).status, 0);
}

}  // namespace
}  // namespace lockstep::inline v0::apps
