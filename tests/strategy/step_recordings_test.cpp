#include "lockstep/strategy/replica/step_recordings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace lockstep::strategy {
namespace {

using ::testing::ElementsAre;

// Writes down how each step came to be done.
class Recorded : public testing::Test {
 protected:
  void step(std::int64_t samples, std::uint64_t placement = 0, bool plain = false) {
    recordings_.run(
        samples, placement,
        [this, samples] {
          if (!records_) done_.push_back("plain " + std::to_string(samples));
        },
        plain);
  }

  StepRecordings::Enqueue record(const StepRecordings::Enqueue& put) {
    records_ = true;
    put();
    records_ = false;
    const int number = ++recorded_;
    const auto replay = [this, number] { done_.push_back("recording " + std::to_string(number)); };
    replay();
    return replay;
  }

  bool records_ = false;
  int recorded_ = 0;
  std::vector<std::string> done_;
  StepKind another_ = StepKind::replay;  // what another replica needs
  StepRecordings recordings_{[this](const StepRecordings::Enqueue& put) { return record(put); },
                             [this](StepKind mine) { return std::min(mine, another_); }};
};

TEST_F(Recorded, AreRecordedAfterTwoPlainSteps) {
  for (int i = 0; i < 5; ++i) step(64);
  EXPECT_THAT(done_,
              ElementsAre("plain 64", "plain 64", "recording 1", "recording 1", "recording 1"));
  EXPECT_EQ(recorded_, 1);
}

TEST_F(Recorded, HaveAShapeEach) {
  for (int i = 0; i < 3; ++i) step(64);
  step(10);
  step(64);
  for (int i = 0; i < 3; ++i) step(10);
  EXPECT_THAT(done_, ElementsAre("plain 64", "plain 64", "recording 1", "plain 10", "recording 1",
                                 "plain 10", "recording 2", "recording 2"));
}

TEST_F(Recorded, AreMadeAnewWhenMemoryMoves) {
  for (int i = 0; i < 3; ++i) step(64, 1);
  for (int i = 0; i < 3; ++i) step(64, 2);
  EXPECT_THAT(done_, ElementsAre("plain 64", "plain 64", "recording 1", "plain 64", "plain 64",
                                 "recording 2"));
}

TEST_F(Recorded, AreNotUsedWhereAnotherReplicaHasNone) {
  for (int i = 0; i < 3; ++i) step(64);
  another_ = StepKind::plain;
  step(64);
  another_ = StepKind::record;
  step(64);
  another_ = StepKind::replay;
  step(64);
  EXPECT_THAT(done_, ElementsAre("plain 64", "plain 64", "recording 1", "plain 64", "recording 2",
                                 "recording 2"));
}

// Where its layers are timed.
TEST_F(Recorded, AreNotUsedForAStepThatIsToBePlain) {
  for (int i = 0; i < 3; ++i) step(64);
  step(64, 0, true);
  step(64);
  EXPECT_THAT(done_, ElementsAre("plain 64", "plain 64", "recording 1", "plain 64", "recording 1"));
}

TEST_F(Recorded, AreMadeAnewAfterAsManyPlainStepsWhenForgotten) {
  for (int i = 0; i < 3; ++i) step(64);
  recordings_.clear();
  for (int i = 0; i < 3; ++i) step(64);
  EXPECT_THAT(done_, ElementsAre("plain 64", "plain 64", "recording 1", "plain 64", "plain 64",
                                 "recording 2"));
}

}  // namespace
}  // namespace lockstep::strategy
