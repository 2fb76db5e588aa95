#include "lockstep/strategy/normalization.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/support/ranks.h"

namespace lockstep::strategy {
namespace {

using allreduce::Communicator;
using allreduce::Route;
using ::testing::ElementsAre;

TEST(MovingStatistics, BecomeTheMeanWeightedBySamples) {
  allreduce::run_ranks(3, Route::in_process, [](const Communicator& group) {
    // Replica 2 has seen nothing, so what it holds does not count.
    const std::array<std::int64_t, 3> samples{1, 3, 0};
    const auto i = static_cast<std::size_t>(group.rank());
    std::vector<float> buffers{static_cast<float>(4 * group.rank()), 8};
    average_moving_statistics(group, buffers, samples[i]);
    EXPECT_THAT(buffers, ElementsAre(3, 8));
  });
}

TEST(MovingStatistics, LeaveOutWhatIsNotFiniteOnAReplicaWithoutSamples) {
  allreduce::run_ranks(3, Route::in_process, [](const Communicator& group) {
    constexpr float kInfinite = std::numeric_limits<float>::infinity();
    std::vector<float> buffers{2, 4};
    if (group.rank() == 1) buffers = {kInfinite, std::numeric_limits<float>::quiet_NaN()};
    average_moving_statistics(group, buffers, group.rank() == 1 ? 0 : 5);
    EXPECT_THAT(buffers, ElementsAre(2, 4));
  });
}

TEST(MovingStatistics, StayWhereNobodyTrained) {
  allreduce::run_ranks(2, Route::in_process, [](const Communicator& group) {
    std::vector<float> buffers{5, 7};
    average_moving_statistics(group, buffers, 0);
    EXPECT_THAT(buffers, ElementsAre(5, 7));
  });
}

TEST(MovingStatistics, OfOneReplicaKeepTheirBits) {
  allreduce::run_ranks(1, Route::in_process, [](const Communicator& group) {
    std::vector<float> buffers{0.1F, 1e-30F, 3e30F};
    average_moving_statistics(group, buffers, 77);
    EXPECT_THAT(buffers, ElementsAre(0.1F, 1e-30F, 3e30F));
  });
}

TEST(MovingStatistics, AreNothingForAModelWithoutThem) {
  allreduce::run_ranks(2, Route::in_process,
                       [](const Communicator& group) { average_moving_statistics(group, {}, 5); });
}

}  // namespace
}  // namespace lockstep::strategy
