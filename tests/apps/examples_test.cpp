// The example programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <string>

#include "tests/apps/program.h"
#include "tests/data/support.h"
#include "tests/paths.h"

namespace lockstep::inline v0::apps {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

constexpr const char* kIrisOutput =
    "accuracy (1.0000|0.9[0-9]+) on [0-9]+ flowers\n(flower [1-5]: "
    "(setosa|versicolor|virginica)\n)+";

std::string example(const std::string& name) {
  return std::string(LOCKSTEP_EXAMPLES "/example_") + name;
}

/// Synthetic flowers of three separable species, in the format of TensorFlow's files.
std::string flowers(int count, unsigned seed) {
  constexpr double kMeasures[3][4] = {
      {5.0, 3.4, 1.5, 0.2}, {5.9, 2.8, 4.3, 1.3}, {6.6, 3.0, 5.6, 2.0}};
  std::mt19937 random(seed);
  std::normal_distribution<double> around(0, 0.1);
  std::string text = std::to_string(count) + ",4,setosa,versicolor,virginica\n";
  for (int i = 0; i < count; ++i) {
    for (const double measure : kMeasures[i % 3])
      text += std::to_string(measure + around(random)) + ",";
    text += std::to_string(i % 3) + "\n";
  }
  return text;
}

TEST(IrisExample, LearnsThreeSpecies) {
  const data::TemporaryDirectory directory;
  data::write_bytes(directory / "train.csv", flowers(120, 1));
  data::write_bytes(directory / "test.csv", flowers(30, 2));
  const Result result = run({example("iris"), directory / "train.csv", directory / "test.csv"});
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(result.output, ContainsRegex(kIrisOutput));
  EXPECT_THAT(result.output,
              HasSubstr("flower 1: setosa\nflower 2: versicolor\nflower 3: virginica\n"));
}

TEST(IrisExample, LearnsFisherDataSet) {
  const std::string iris = LOCKSTEP_SOURCE_DIR "/apps/examples/iris/";
  const Result result = run({example("iris"), iris + "train.csv", iris + "test.csv"});
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(result.output, ContainsRegex(kIrisOutput));
}

TEST(IrisExample, PrintsUsage) {
  EXPECT_EQ(run({example("iris")}).status, 1);
  const Result result = run({example("iris"), "nowhere.csv", "nowhere.csv"});
  EXPECT_NE(result.status, 0);
  EXPECT_THAT(result.errors, HasSubstr("[nowhere.csv] expected a file that can be read"));
}

/// Skipped unless onnxruntime is installed.
class OnnxruntimeExample : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(example("onnxruntime")))
      GTEST_SKIP() << "built without onnxruntime's headers and library (ONNXRUNTIME_ROOT)";
  }

  /// Runs the example with a file as standard input.
  Result classify(const std::string& model, const std::string& samples) const {
    data::write_bytes(directory_ / "samples.csv", samples);
    return run({"/bin/sh", "-c", R"("$0" "$1" < "$2")", example("onnxruntime"), model,
                directory_ / "samples.csv"});
  }

  data::TemporaryDirectory directory_;
};

TEST_F(OnnxruntimeExample, PrintsClassOfEachLine) {
  const std::string model = directory_ / "iris.onnx";
  data::write_bytes(directory_ / "train.csv", flowers(120, 1));
  const std::string data = "csv:" + (directory_ / "train.csv").string();
  ASSERT_EQ(run({LOCKSTEP_PROGRAM, "train", "--quiet", "--model", "mlp:10,10", "--data", data,
                 "--global-batch", "32", "--epochs", "60", "--learning-rate", "0.01",
                 "--checkpoint-dir", directory_ / "run"})
                .status,
            0);
  ASSERT_EQ(run({LOCKSTEP_PROGRAM, "checkpoint", "export", directory_ / "run",
                 "--with-preprocessing", "--output", model})
                .status,
            0);
  const Result result = classify(model, "5.0,3.4,1.5,0.2\n5.9,2.8,4.3,1.3\n6.6,3.0,5.6,2.0\n");
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_EQ(result.output, "setosa\nversicolor\nvirginica\n");

  EXPECT_THAT(classify(model, "1,2,3\n").errors, HasSubstr("expected 4 numbers, got 1,2,3"));
  EXPECT_THAT(classify(model, "1,2,x,4\n").errors, HasSubstr("expected 4 numbers, got 1,2,x,4"));
  EXPECT_THAT(classify(model, "").errors, HasSubstr("expected samples on standard input"));
  EXPECT_EQ(classify(model, "").status, 1);
}

TEST_F(OnnxruntimeExample, PrintsUsage) {
  EXPECT_THAT(run({example("onnxruntime")}).errors, HasSubstr("usage: example_onnxruntime MODEL"));
  EXPECT_EQ(classify(directory_ / "nowhere.onnx", "1\n").status, 1);
}

TEST(CustomLayerExample, LearnsWithCustomLayer) {
  const Result result = run({example("custom_layer")});
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(
      result.output,
      MatchesRegex("epoch 1: .*\nepoch 2: .*\nepoch 3: loss [0-9.]+, accuracy (1.0000|0.9.*)\n"));
}

TEST(FashionMnistExample, TrainsAndEvaluates) {
  const Result result =
      run({example("fashion_mnist"), "synthetic:28x28x1,10,640", "synthetic:28x28x1,10,100", "1"});
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(result.output, ContainsRegex("accuracy [01].[0-9]+ on 100 records; replicas: 1\n"));
}

TEST(CustomLoopExample, StopsAtSmallLossOnOneAndTwoReplicas) {
  const Result two = run({example("custom_loop")});
  EXPECT_EQ(two.status, 0) << two.errors;
  EXPECT_THAT(two.output, MatchesRegex("(epoch [0-9]+: loss [0-9]\\.[0-9]+ at rate 0.002\n)+"));
  EXPECT_THAT(two.output, MatchesRegex("(.|\n)*loss 0.0[0-4][0-9]+ at rate 0.002\n"));
  EXPECT_EQ(run({example("custom_loop"), "synthetic:8x8x1,4,2000", "cpu:0"}).output, two.output);
}

TEST(FineTuneExample, LearnsNewClasses) {
  const data::TemporaryDirectory directory;
  const std::string run_directory = directory / "run";
  ASSERT_EQ(
      run_lockstep("train --model mlp --data synthetic:8x8x1,4,600 --quiet --checkpoint-dir " +
                   run_directory)
          .status,
      0);
  const Result result = run({example("fine_tune"), run_directory});
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(
      result.output,
      ContainsRegex("accuracy 0.[0-4][0-9]+ before, (1.0000|0.9[0-9]+) after fine-tuning\n"));
}

TEST(TwoOutputsExample, LearnsBoth) {
  const Result result = run({example("two_outputs")});
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(result.output, MatchesRegex("loss [01]\\.[0-9]+\nkind_loss 0\\.[0-9]+\n"
                                          "kind_accuracy (1\\.0|0\\.[5-9])[0-9]+\n"
                                          "price_loss 0\\.[01][0-9]+\n"));
}

TEST(FineTuneExample, PrintsUsage) {
  EXPECT_EQ(run({example("fine_tune")}).status, 2);
  EXPECT_THAT(run({example("fine_tune"), "nowhere"}).errors, HasSubstr("nowhere"));
}

}  // namespace
}  // namespace lockstep::inline v0::apps
