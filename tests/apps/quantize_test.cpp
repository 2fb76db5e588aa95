// lockstep quantize: quantized files of a trained model, and errors.
#include <fmt/format.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/files.h"
#include "lockstep/checkpoint/manifest.h"
#include "tests/apps/saved.h"

namespace lockstep::inline v0::apps {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class Quantized : public Saved {
 protected:
  Quantized() {
    const Result result = run_lockstep(train() + "--quiet");
    EXPECT_EQ(result.status, 0) << result.errors;
  }

  std::string file() const { return directory("model.onnx"); }
  /// The command `lockstep quantize` for the training, with `options`.
  std::string quantize(const std::string& options = "", const std::string& data = kData) const {
    return fmt::format("quantize --checkpoint {} --output {} {} {}", directory(), file(), data,
                       options);
  }
  /// Number of files in the test directory, without the checkpoints.
  std::size_t files() const {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(scratch_.path()))
      if (entry.path() != directory()) ++count;
    return count;
  }
};

TEST_F(Quantized, ReportsLayersAccuracyAndSizes) {
  const Result result = run_lockstep(quantize("--json"));
  ASSERT_EQ(result.status, 0) << result.errors;
  const auto event = result.event("quantize");
  EXPECT_EQ(event["calibration"], "min-max");
  EXPECT_EQ(event["calibration_samples"], 512);
  EXPECT_EQ(event["samples"], 1003);
  EXPECT_GE(event["layers"].size(), 2u);
  for (const auto& layer : event["layers"]) {
    EXPECT_EQ(layer["type"], "dense");
    EXPECT_EQ(layer["int8"], true);
    EXPECT_GT(layer["snr"], 10);
    EXPECT_LE(layer["low"], 0);
    EXPECT_GT(layer["high"], 0);
  }
  EXPECT_LE(event["drop"], 0.5);
  const auto evaluated = run_lockstep("evaluate --json --checkpoint " + directory() + kData);
  EXPECT_EQ(event["float32_accuracy"], evaluated.event("evaluate")["accuracy"]);
  EXPECT_EQ(event["bytes"], std::filesystem::file_size(file()));
  EXPECT_LT(event["bytes"], event["float32_bytes"]);
}

TEST_F(Quantized, PrintsTableAndWritesSameBytes) {
  const Result first = run_lockstep(quantize("--calibration percentile --samples 100"));
  ASSERT_EQ(first.status, 0) << first.errors;
  EXPECT_THAT(first.output, HasSubstr(", percentile from 100 samples of 1003 synthetic samples"));
  EXPECT_THAT(first.output,
              ContainsRegex("\nlayer +type +weights +input from +to +SNR dB\ndense +dense +int8 "));
  EXPECT_THAT(first.output,
              ContainsRegex("accuracy [01]\\.[0-9]+ in float32, [01]\\.[0-9]+ in int8 "
                            "\\(-?0\\.[0-9]+ points lost\\), 1003 samples\n"));
  EXPECT_THAT(first.output, ContainsRegex("model.onnx: [0-9]+ bytes, 0\\.[0-9]+ of [0-9]+ with "
                                          "weights in float32\n$"));
  const std::string bytes = checkpoint::contents_of(file());
  const Result second = run_lockstep(quantize("--calibration percentile --samples 100"));
  EXPECT_EQ(second.output, first.output);
  EXPECT_EQ(checkpoint::contents_of(file()), bytes);
  EXPECT_EQ(files(), 1U);
}

TEST_F(Quantized, KeepsLayersInFloat) {
  const Result result = run_lockstep(quantize("--keep-float dense"));
  ASSERT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(result.output,
              ContainsRegex("\ndense +dense +float32 .* - +kept by --keep-float\ndense_1 +dense "
                            "+int8 "));
}

TEST_F(Quantized, ValidatesOnOtherData) {
  const Result result =
      run_lockstep(quantize("--quiet --json --validation-data synthetic:8x8x1,4,200"));
  EXPECT_EQ(result.event("quantize")["samples"], 200);
}

TEST_F(Quantized, WritesNothingOnError) {
  const Result shape = run_lockstep(quantize("", "--data synthetic:8x9x1,4,100"));
  EXPECT_EQ(shape.status, 3);
  EXPECT_THAT(shape.errors, HasSubstr("expected samples of shape [8, 8, 1]"));
  const Result few = run_lockstep(quantize("", "--data synthetic:8x8x1,4,10"));
  EXPECT_EQ(few.status, 3);
  EXPECT_THAT(few.errors, HasSubstr("expected at least 16 samples to calibrate with, got 10"));
  const Result all = run_lockstep(quantize("--keep-float *"));
  EXPECT_EQ(all.status, 2);
  EXPECT_THAT(all.errors,
              HasSubstr("expected a convolution or a dense layer to compute with int8"));
  const Result several = run(mpirun(2, quantize()));
  EXPECT_EQ(several.status, 2);
  EXPECT_THAT(several.errors, HasSubstr("[quantize] expected one process, got 2 ranks"));
  EXPECT_EQ(files(), 0U);
}

TEST_F(Quantized, RejectsIncompleteCheckpoint) {
  for (const auto& found : checkpoint::list_checkpoints(directory()))
    std::filesystem::remove(found.path / checkpoint::kManifestName);
  const Result result = run_lockstep(quantize());
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.errors, HasSubstr("expected a directory with a complete checkpoint"));
  EXPECT_EQ(files(), 0U);
}

TEST_F(Quantized, ChecksOutputFirst) {
  std::filesystem::create_directory(file());
  const Result result = run_lockstep(quantize("", " --data synthetic:9x9x9,2,5 "));
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.errors, HasSubstr("model.onnx] expected a file; it is a directory; --layout "
                                       "triton writes a folder"));
}

TEST_F(Quantized, WritesTritonFolderAtomically) {
  const std::string folder = directory("pets");
  const std::string command =
      "checkpoint export " + directory() + " --format onnx --layout triton --output " + folder;
  std::filesystem::create_directories(folder + "/config.pbtxt");
  EXPECT_EQ(run_lockstep(command).status, 3);
  EXPECT_FALSE(std::filesystem::exists(folder + "/1"));
  std::filesystem::remove(folder + "/config.pbtxt");
  checkpoint::overwrite(folder + "/labels.txt", "of another model");
  const Result result = run_lockstep(command);
  ASSERT_EQ(result.status, 0) << result.errors;
  EXPECT_TRUE(std::filesystem::exists(folder + "/1/model.onnx"));
  EXPECT_FALSE(std::filesystem::exists(folder + "/labels.txt")) << "these classes have no names";
}

}  // namespace
}  // namespace lockstep::inline v0::apps
