#include "lockstep/allreduce/buckets/straggler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::allreduce {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr double kMs = 1e-3;

std::vector<std::size_t> replicas(const StragglerReport& report) {
  std::vector<std::size_t> named;
  for (const Straggler& straggler : report.stragglers()) named.push_back(straggler.replica);
  return named;
}

/// A report on ten equal steps.
StragglerReport after(const std::vector<BusySeconds>& busy) {
  StragglerReport report(busy.size());
  for (int step = 0; step < 10; ++step) report.add(busy);
  return report;
}

BusySeconds computing(double seconds) { return {.input = 1 * kMs, .compute = seconds}; }
BusySeconds reading(double seconds) { return {.input = seconds, .compute = 10 * kMs}; }

TEST(StragglerReport, NamesTheReplicaThatComputesSlowly) {
  const StragglerReport report =
      after({computing(12 * kMs), computing(212 * kMs), computing(12 * kMs)});
  const std::vector<Straggler> found = report.stragglers();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].replica, 1U);
  EXPECT_STREQ(found[0].phase, "compute");
  EXPECT_NEAR(found[0].seconds, 0.212, 1e-9);
  EXPECT_NEAR(found[0].median, 0.012, 1e-9);
  EXPECT_NEAR(found[0].wait, 0.2, 1e-9);
}

TEST(StragglerReport, NamesTheReplicaWhoseInputIsSlow) {
  const std::vector<Straggler> found =
      after({reading(1 * kMs), reading(2 * kMs), reading(1 * kMs), reading(40 * kMs)}).stragglers();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].replica, 3U);
  EXPECT_STREQ(found[0].phase, "input");
}

TEST(StragglerReport, NamesOneOfTwo) {
  EXPECT_THAT(replicas(after({computing(10 * kMs), computing(30 * kMs)})), ElementsAre(1));
}

TEST(StragglerReport, NamesAllReplicasOfASlowHostSlowestFirst) {
  EXPECT_THAT(replicas(after({computing(10 * kMs), computing(10 * kMs), computing(30 * kMs),
                              computing(31 * kMs)})),
              ElementsAre(3, 2));
}

TEST(StragglerReport, DoesNotNameTheMajority) {
  EXPECT_THAT(replicas(after({computing(10 * kMs), computing(30 * kMs), computing(30 * kMs)})),
              IsEmpty());
}

TEST(StragglerReport, NamesNoReplicaAmongEquals) {
  EXPECT_THAT(replicas(after({computing(10 * kMs), computing(11 * kMs), computing(9 * kMs)})),
              IsEmpty());
}

TEST(StragglerReport, IgnoresDelaysBelowAMillisecond) {
  EXPECT_THAT(replicas(after({computing(0.2 * kMs), computing(1.1 * kMs), computing(0.2 * kMs)})),
              IsEmpty());
}

TEST(StragglerReport, IgnoresAPhaseThatDelaysNoReplica) {
  const BusySeconds usual{.input = 1 * kMs, .compute = 30 * kMs};
  // Slower in one phase and faster in the other.
  EXPECT_THAT(replicas(after({usual, usual, {.input = 11 * kMs, .compute = 20 * kMs}})), IsEmpty());
  // Two milliseconds of a second.
  const BusySeconds long_step{.input = 1 * kMs, .compute = 1};
  EXPECT_THAT(replicas(after({long_step, long_step, {.input = 3 * kMs, .compute = 1}})), IsEmpty());
}

TEST(StragglerReport, NamesNoReplicaIfEachIsLateInTurn) {
  StragglerReport report(3);
  for (std::size_t step = 0; step < 30; ++step) {
    std::vector<BusySeconds> busy(3, computing(10 * kMs));
    busy[step % 3] = computing(100 * kMs);
    report.add(busy);
  }
  EXPECT_THAT(report.stragglers(), IsEmpty());
}

TEST(StragglerReport, AcceptsSumsOverSeveralSteps) {
  StragglerReport report(2);
  report.add(std::vector{computing(100 * kMs), computing(300 * kMs)}, 10);
  EXPECT_EQ(report.steps(), 10U);
  ASSERT_EQ(report.stragglers().size(), 1U);
  EXPECT_NEAR(report.stragglers()[0].seconds, 0.030, 1e-9);
}

TEST(StragglerReport, Restarts) {
  StragglerReport report = after({computing(10 * kMs), computing(90 * kMs)});
  report.restart();
  EXPECT_EQ(report.steps(), 0U);
  EXPECT_THAT(report.stragglers(), IsEmpty());
  report.add(std::vector{computing(90 * kMs), computing(10 * kMs)});
  EXPECT_THAT(replicas(report), ElementsAre(0));
}

TEST(StragglerReport, IsEmptyForOneReplica) {
  EXPECT_THAT(after({computing(500 * kMs)}).stragglers(), IsEmpty());
}

TEST(StragglerReport, RequiresOneEntryPerReplica) {
  StragglerReport report(2);
  EXPECT_THROW(report.add(std::vector<BusySeconds>(3)), CheckFailure);
}

TEST(StragglerReport, FormatsSentences) {
  const StragglerReport report =
      after({computing(12 * kMs), computing(212 * kMs), computing(12 * kMs)});
  const std::vector<std::string> names = {"rank 0 (host G)", "rank 1 (host H)", "rank 2 (host H)"};
  EXPECT_THAT(to_sentences(report.stragglers(), names),
              ElementsAre("rank 1 (host H) is slow: compute takes 212 ms per step, the median is "
                          "12 ms; the others wait 200 ms per step for it"));
  EXPECT_THAT(to_sentences(after({reading(1.2 * kMs), reading(7.5 * kMs)}).stragglers(), names),
              ElementsAre("rank 1 (host H) is slow: input takes 7.5 ms per step, the median is 1.2 "
                          "ms; the others wait 6.3 ms per step for it"));
  EXPECT_THAT(to_sentences({}, names), IsEmpty());
}

}  // namespace
}  // namespace lockstep::inline v0::allreduce
