// Files that version 1 wrote (tests/version_1) are read by this one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>

#include "tests/apps/program.h"
#include "tests/apps/training.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/paths.h"

namespace lockstep::apps {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class Version1 : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::copy(LOCKSTEP_SOURCE_DIR "/tests/version_1", at(""), fs::copy_options::recursive);
    // The indexes hold the time of their files.
    const fs::file_time_type written = std::chrono::file_clock::from_sys(
        std::chrono::sys_seconds(std::chrono::seconds(1'700'000'000)));
    for (const auto& file : fs::directory_iterator(at("shards")))
      if (file.path().extension() == ".tfrecord") fs::last_write_time(file.path(), written);
  }
  std::string at(const std::string& name) const { return scratch_.path() / "v1" / name; }
  std::string data() const {
    return " --data " + at("shards") + "/*.tfrecord --input-shape 4x4x1 ";
  }

 private:
  const checkpoint::ScratchDirectory scratch_;
};

TEST_F(Version1, RecordsAndTheirIndexesAreRead) {
  const Result verified = run_lockstep("data verify " + at("shards"));
  EXPECT_EQ(verified.status, 0) << verified.errors;
  EXPECT_THAT(verified.output, HasSubstr("00001-of-00002.tfrecord: 12 records, intact"));
  const Result indexed = run_lockstep("data index " + at("shards") + "/*.tfrecord");
  EXPECT_THAT(indexed.output, HasSubstr("00000-of-00002.tfrecord: 12 records, index up to date"));
  EXPECT_THAT(indexed.output, HasSubstr("00001-of-00002.tfrecord: 12 records, index up to date"));
}

TEST_F(Version1, CheckpointsPredictTheSame) {
  EXPECT_EQ(run_lockstep("checkpoint verify " + at("run")).status, 0);
  const Result result = run_lockstep("predict --checkpoint " + at("run/step-00000007") + data() +
                                     "--output " + at("p.csv"));
  ASSERT_EQ(result.status, 0) << result.errors;
  const auto expected = numbers_of(checkpoint::contents_of(at("predictions.csv")));
  const auto given = numbers_of(checkpoint::contents_of(at("p.csv")));
  ASSERT_EQ(given.size(), 24U);
  for (std::size_t i = 0; i < given.size(); ++i)
    EXPECT_THAT(given[i], ::testing::Pointwise(::testing::DoubleNear(1e-5), expected[i]))
        << "record " << i;
}

TEST_F(Version1, TrainingsGoOnInMidEpoch) {
  const Result result =
      run_lockstep("train --model " + at("network.json") + data() +
                   "--global-batch 5 --epochs 3 --devices cpu:0 --optimizer adam --learning-rate "
                   "0.02 --seed 7 --resume require --log-format json --checkpoint-dir " +
                   at("run"));
  ASSERT_EQ(result.status, 0) << result.errors;
  EXPECT_EQ(result.event("start")["first_step"], 7);
  std::vector<double> losses;
  for (const auto& event : result.events())
    if (event["event"] == "epoch") losses.push_back(event["loss"]);
  EXPECT_THAT(losses,
              ::testing::Pointwise(::testing::DoubleNear(1e-4), {0.9217559664, 0.3980406014}));
}

}  // namespace
}  // namespace lockstep::apps
