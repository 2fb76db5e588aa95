#include "lockstep/strategy/replica/step_recordings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace lockstep::inline v0::train {
using namespace strategy;
namespace {

using ::testing::ElementsAre;

// Logs how each step was executed.
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

  StepRecordings::Enqueue record(const StepRecordings::Enqueue& enqueue) {
    records_ = true;
    enqueue();
    records_ = false;
    const int number = ++recorded_;
    const auto replay = [this, number] { done_.push_back("recording " + std::to_string(number)); };
    replay();
    return replay;
  }

  bool records_ = false;
  int recorded_ = 0;
  std::vector<std::string> done_;
  StepKind another_ = StepKind::replay;  // the kind that another replica needs
  StepRecordings recordings_{
      [this](const StepRecordings::Enqueue& enqueue) { return record(enqueue); },
      [this](StepKind mine) { return std::min(mine, another_); }};
};

TEST_F(Recorded, AreRecordedAfterTwoPlainSteps) {
  for (int i = 0; i < 5; ++i) step(64);
  EXPECT_THAT(done_,
              ElementsAre("plain 64", "plain 64", "recording 1", "recording 1", "recording 1"));
  EXPECT_EQ(recorded_, 1);
}

TEST_F(Recorded, ExistPerShape) {
  for (int i = 0; i < 3; ++i) step(64);
  step(10);
  step(64);
  for (int i = 0; i < 3; ++i) step(10);
  EXPECT_THAT(done_, ElementsAre("plain 64", "plain 64", "recording 1", "plain 10", "recording 1",
                                 "plain 10", "recording 2", "recording 2"));
}

TEST_F(Recorded, AreRecordedAgainWhenMemoryMoves) {
  for (int i = 0; i < 3; ++i) step(64, 1);
  for (int i = 0; i < 3; ++i) step(64, 2);
  EXPECT_THAT(done_, ElementsAre("plain 64", "plain 64", "recording 1", "plain 64", "plain 64",
                                 "recording 2"));
}

TEST_F(Recorded, AreNotUsedIfAnotherReplicaHasNone) {
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

// As for steps whose layers are timed.
TEST_F(Recorded, AreNotUsedForPlainSteps) {
  for (int i = 0; i < 3; ++i) step(64);
  step(64, 0, true);
  step(64);
  EXPECT_THAT(done_, ElementsAre("plain 64", "plain 64", "recording 1", "plain 64", "recording 1"));
}

TEST_F(Recorded, AreRecordedAgainAfterPlainStepsWhenCleared) {
  for (int i = 0; i < 3; ++i) step(64);
  recordings_.clear();
  for (int i = 0; i < 3; ++i) step(64);
  EXPECT_THAT(done_, ElementsAre("plain 64", "plain 64", "recording 1", "plain 64", "plain 64",
                                 "recording 2"));
}

}  // namespace
}  // namespace lockstep::inline v0::train
