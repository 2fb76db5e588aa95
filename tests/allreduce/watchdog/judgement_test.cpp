#include "lockstep/allreduce/watchdog/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/allreduce/watchdog/views.h"

namespace lockstep::inline v0::allreduce {
namespace {

using Kind = Verdict::Kind;
using Link = RankView::Link;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::optional<Verdict> progress(const std::vector<RankView>& ranks) {
  return judge_progress(ranks, kTimeout, kBuckets);
}
std::optional<Verdict> liveness(const std::vector<RankView>& ranks) {
  return judge_liveness(ranks, kTimeout, kBuckets);
}

// --- Absent

TEST(JudgeProgress, NamesTheRankThatTheOthersWaitFor) {
  const auto verdict = progress({rank_with({inside(8, 3, 120)}), rank_with({inside(8, 3, 120.5)}),
                                 rank_with({outside(7, 2, 121)}), rank_with({inside(8, 3, 120)})});
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->kind, Kind::absent);
  EXPECT_THAT(verdict->ranks, ElementsAre(2));
  EXPECT_EQ(verdict->text,
            "[watchdog] expected progress within 120 s; rank 2, host H, step 100, waiting before "
            "bucket 3 (layers conv4 .. fc1) for 121 s in compute; ranks 0,1,3 are in it");
}

TEST(JudgeProgress, WaitsForTheTimeout) {
  EXPECT_FALSE(progress({rank_with({inside(8, 3, 119)}), rank_with({outside(7, 2, 125)})}));
  EXPECT_FALSE(progress({rank_with({inside(8, 3, 125)}), rank_with({outside(7, 2, 119)})}));
  EXPECT_TRUE(progress({rank_with({inside(8, 3, 120)}), rank_with({outside(7, 2, 120)})}));
}

TEST(JudgeProgress, NeverNamesAReplicaThatMakesProgress) {
  EXPECT_FALSE(progress({rank_with({inside(8, 3, 5000)}), rank_with({busy(7, 2, 5000, 1)})}));
}

// The absent replica without progress may wait for another thread of its rank, which makes
// progress.
TEST(JudgeProgress, NamesNoReplicaWhileAnyAbsentOneMakesProgress) {
  EXPECT_FALSE(progress(
      {rank_with({inside(8, 3, 500)}), rank_with({busy(7, 2, 500, 3), outside(7, 2, 500)})}));
}

TEST(JudgeProgress, CountsReplicasThatEnteredLater) {
  const auto verdict = progress({rank_with({inside(8, 3, 130)}), rank_with({inside(8, 3, 20)}),
                                 rank_with({outside(7, 2, 130)})});
  ASSERT_TRUE(verdict);
  EXPECT_THAT(verdict->text, HasSubstr("; ranks 0,1 are in it"));
}

TEST(JudgeProgress, NamesAllThatAreFurthestBehind) {
  const auto verdict =
      progress({rank_with({inside(8, 3, 130)}), rank_with({outside(6, 1, 130, Phase::input)}, "G"),
                rank_with({outside(6, 1, 131)}, "K"), rank_with({outside(7, 2, 130)})});
  ASSERT_TRUE(verdict);
  EXPECT_THAT(verdict->ranks, ElementsAre(1, 2));
  EXPECT_EQ(
      verdict->text,
      "[watchdog] expected progress within 120 s; rank 1, host G, step 100, waiting before bucket "
      "2 (layers conv9 .. conv5) for 130 s in input; rank 2, host K, step 100, waiting before "
      "bucket 2 (layers conv9 .. conv5) for 131 s in compute; rank 0 is in it");
}

// --- Groups of ranks

/// A rank that is `replica` among all ranks, and `member` in a group of `ranks`.
RankView in_group(ReplicaView replica, ReplicaView member, std::vector<std::int32_t> ranks,
                  std::uint32_t number = 1) {
  member.group = {.number = number, .members = std::move(ranks)};
  return rank_with({std::move(replica), std::move(member)});
}

ReplicaView gathering(std::uint64_t number, double seconds) {
  ReplicaView view = inside(number, -1, seconds, -1);
  view.state.operation = "all_gather";
  return view;
}

TEST(JudgeProgress, NamesTheMemberThatItsGroupWaitsFor) {
  const ReplicaView still = outside(4, -1, 130, Phase::starting, -1);
  const auto verdict =
      progress({in_group(still, gathering(3, 130), {0, 2}), rank_with({still}),
                in_group(still, outside(2, -1, 130, Phase::starting, -1), {0, 2})});
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->kind, Kind::absent);
  EXPECT_THAT(verdict->ranks, ElementsAre(2));
  EXPECT_THAT(verdict->text,
              HasSubstr("rank 2, host H, before the first step, waiting before all_gather of ranks "
                        "0,2 for 130 s in starting; rank 0 is in it"));
}

// Rank 1 waits for rank 0 in a collective of all ranks; rank 0 waits in its group for rank 2, which
// computes.
TEST(JudgeProgress, DoesNotNameARankThatWaitsInAGroup) {
  const std::vector<RankView> ranks = {
      in_group(outside(4, -1, 500), gathering(3, 500), {0, 2}), rank_with({inside(5, -1, 500)}),
      in_group(computing(4, -1, 500), computing(2, -1, 500), {0, 2})};
  EXPECT_FALSE(progress(ranks));
  const auto wait = find_long_wait(ranks, kTimeout, kBuckets);
  ASSERT_TRUE(wait);
  EXPECT_THAT(wait->text, HasSubstr("rank 2, host H"));
}

TEST(JudgeProgress, FindsRanksThatWaitForEachOtherInDifferentGroups) {
  const auto verdict = progress({in_group(outside(4, -1, 130), gathering(3, 130), {0, 1}, 1),
                                 in_group(inside(5, -1, 130), outside(2, -1, 130), {0, 1}, 1)});
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->kind, Kind::stuck);
  EXPECT_THAT(verdict->text, HasSubstr("rank 0 before the first step, in all_gather of ranks 0,1; "
                                       "rank 1 at step 100, in all_reduce"));
  EXPECT_THAT(verdict->text, HasSubstr("each makes the calls of its groups in the same order"));
}

TEST(JudgeProgress, NamesAMemberThatHasEndedItsGroup) {
  const auto verdict = progress({in_group(outside(4, -1, 130), gathering(3, 130), {0, 1}),
                                 rank_with({computing(4, -1, 130)})});
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->kind, Kind::left);
  EXPECT_EQ(verdict->text,
            "[watchdog] expected all members of the group of ranks 0,1 to make the same calls; "
            "rank 1, host H, has ended its part of the group; rank 0 is before the first step, in "
            "all_gather of ranks 0,1");
}

TEST(CombineGroups, CountsTheActivityOfAProcessInEachOfItsGroups) {
  std::vector<ReplicaView> views = {outside(4, -1, 90, Phase::idle, 7), gathering(3, 5)};
  views[1].group.number = 1;
  combine_groups(views);
  EXPECT_EQ(views[0].still_seconds, 5);
  EXPECT_EQ(views[1].still_seconds, 5);
  EXPECT_EQ(views[1].state.step, 7);
  EXPECT_EQ(views[1].state.phase, Phase::idle);
  EXPECT_EQ(views[1].collective_seconds, 5);
}

TEST(JudgeProgress, NamesAFewOfMany) {
  std::vector<RankView> ranks = {rank_with({inside(8, 3, 130)})};
  for (int i = 0; i < 16; ++i) ranks.push_back(rank_with({outside(7, 2, 130)}));
  const auto verdict = progress(ranks);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->ranks.size(), 16U);
  EXPECT_THAT(verdict->text, HasSubstr("rank 4, host H"));
  EXPECT_THAT(verdict->text, Not(HasSubstr("rank 5, host H")));
  EXPECT_THAT(verdict->text, HasSubstr("; and 12 more; rank 0 is in it"));
}

TEST(JudgeProgress, NamesCollectivesWithoutABucket) {
  ReplicaView waiting = inside(3, -1, 130, -1);
  waiting.state.operation = "all_gather";
  const auto verdict =
      progress({rank_with({outside(2, -1, 130, Phase::starting, -1)}), rank_with({waiting})});
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->text,
            "[watchdog] expected progress within 120 s; rank 0, host H, before the first step, "
            "waiting before all_gather for 130 s in starting; rank 1 is in it; the awaited process "
            "neither computes, reads nor writes: if it waits on purpose, call tick() (in C "
            "lockstep_still_at_work()), or set a longer stall_timeout, which "
            "LOCKSTEP_STALL_TIMEOUT=SECONDS in the environment overrides");
}

TEST(JudgeProgress, DerivesTheBucketIfTheOthersAreFurtherAhead) {
  const auto verdict =
      progress({rank_with({inside(10, 1, 130, 101)}), rank_with({outside(7, 2, 130)})});
  ASSERT_TRUE(verdict);
  EXPECT_THAT(verdict->text, HasSubstr("waiting before bucket 3 (layers conv4 .. fc1)"));
  // After the last bucket comes the first one.
  const auto next_step =
      progress({rank_with({inside(10, 1, 130, 101)}), rank_with({outside(8, 3, 130)})});
  ASSERT_TRUE(next_step);
  EXPECT_THAT(next_step->text, HasSubstr("waiting before bucket 0 (layers fc3)"));
  const auto unknown =
      progress({rank_with({inside(10, 1, 130)}), rank_with({outside(7, -1, 130)})});
  ASSERT_TRUE(unknown);
  EXPECT_THAT(unknown->text, HasSubstr("waiting before the next collective for"));
}

TEST(JudgeProgress, WorksWithoutBucketContents) {
  const std::vector<RankView> ranks = {rank_with({inside(8, 3, 130)}),
                                       rank_with({outside(7, 2, 130)})};
  const auto verdict = judge_progress(ranks, kTimeout, {});
  ASSERT_TRUE(verdict);
  EXPECT_THAT(verdict->text, HasSubstr("waiting before bucket 3 for 130 s"));
}

TEST(JudgeProgress, NumbersReplicasIfRanksDriveSeveral) {
  const auto verdict = progress({rank_with({inside(8, 3, 130), inside(8, 3, 130)}, "G"),
                                 rank_with({inside(8, 3, 130), outside(7, 2, 130)}, "H")});
  ASSERT_TRUE(verdict);
  EXPECT_THAT(verdict->ranks, ElementsAre(1));
  EXPECT_EQ(
      verdict->text,
      "[watchdog] expected progress within 120 s; replica 3 (rank 1, host H), step 100, waiting "
      "before bucket 3 (layers conv4 .. fc1) for 130 s in compute; replicas 0,1,2 are in it");
}

TEST(JudgeProgress, IgnoresRanksThatHaveLeft) {
  const auto verdict = progress({rank_with({inside(8, 3, 130)}),
                                 leaving(rank_with({outside(7, 2, 500)}), Link::failed),
                                 leaving(rank_with({outside(7, 2, 500)}), Link::left)});
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->kind, Kind::stuck);
  EXPECT_EQ(verdict->text,
            "[watchdog] expected progress within 120 s; rank 1, host H, has left after an error; "
            "rank 2, host H, has left; no other rank has made progress for 130 s: rank 0 is at "
            "step 100, in all_reduce of bucket 3 (layers conv4 .. fc1)");
}

TEST(JudgeProgress, AlsoListsRanksThatHaveLeft) {
  const auto verdict = progress({rank_with({inside(8, 3, 130)}), rank_with({outside(7, 2, 130)}),
                                 leaving(rank_with({outside(7, 2, 500)}), Link::left)});
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->kind, Kind::absent);
  EXPECT_THAT(verdict->text, HasSubstr(" s in compute; rank 0 is in it; rank 2, host H, has left"));
}

TEST(JudgeProgress, IgnoresRanksThatHaveNotReported) {
  EXPECT_FALSE(progress({rank_with({inside(8, 3, 20)}), rank_with({})}));
}

// --- At work

std::optional<LongWait> wait_of(const std::vector<RankView>& ranks) {
  return find_long_wait(ranks, kTimeout, kBuckets);
}

TEST(FindLongWait, NamesTheRankThatComputesWithoutReporting) {
  const std::vector<RankView> ranks = {rank_with({computing(7, -1, 125)}),
                                       rank_with({inside(8, 3, 121)})};
  EXPECT_FALSE(progress(ranks));
  const auto wait = wait_of(ranks);
  ASSERT_TRUE(wait);
  EXPECT_EQ(wait->seconds, 121);
  EXPECT_EQ(wait->text,
            "[watchdog] expected progress within 120 s; rank 0, host H, step 100, waiting before "
            "bucket 3 (layers conv4 .. fc1) for 125 s in idle; rank 1 is in it; the job continues, "
            "because the awaited process computes, reads or writes: in such work call tick() (in C "
            "lockstep_still_at_work()), or set a longer stall_timeout, which "
            "LOCKSTEP_STALL_TIMEOUT=SECONDS in the environment overrides");
}

TEST(FindLongWait, StartsAtTheTimeout) {
  EXPECT_FALSE(wait_of({rank_with({computing(7, 2, 119)}), rank_with({inside(8, 3, 125)})}));
  EXPECT_FALSE(wait_of({rank_with({computing(7, 2, 125)}), rank_with({inside(8, 3, 119)})}));
  EXPECT_TRUE(wait_of({rank_with({computing(7, 2, 120)}), rank_with({inside(8, 3, 120)})}));
}

// In a training the library reports its own progress.
TEST(FindLongWait, IsEmptyWithoutUnreportedWork) {
  EXPECT_FALSE(
      wait_of({rank_with({computing(7, 2, 500, Phase::compute)}), rank_with({inside(8, 3, 500)})}));
  EXPECT_FALSE(wait_of({rank_with({computing(7, 2, 1)}), rank_with({inside(8, 3, 500)})}));
  EXPECT_FALSE(wait_of({rank_with({computing(7, 2, 500)}), rank_with({computing(7, 2, 500)})}));
}

TEST(FindLongWait, IgnoresBlockedReplicas) {
  const std::vector<RankView> ranks = {rank_with({inside(8, 3, 300)}),
                                       rank_with({computing(7, 2, 290)}),
                                       rank_with({outside(7, 2, 290, Phase::idle)})};
  EXPECT_FALSE(progress(ranks)) << "it may wait for the other";
  const auto wait = wait_of(ranks);
  ASSERT_TRUE(wait);
  EXPECT_THAT(wait->text, HasSubstr("rank 1, host H"));
  EXPECT_THAT(wait->text, Not(HasSubstr("rank 2, host H")));
}

TEST(FindLongWait, NamesTheFinalCollective) {
  const auto wait = wait_of({rank_with({at_the_end(7, 200)}), rank_with({computing(7, 2, 200)})});
  ASSERT_TRUE(wait);
  EXPECT_THAT(wait->text, HasSubstr("rank 1, host H, step 100, waiting before the end of the job "
                                    "for 200 s in idle; rank 0 is in it"));
}

// --- Departures

TEST(JudgeDepartures, EndsWaitsForADepartedRank) {
  const auto verdict = judge_departures(
      std::vector{rank_with({at_the_end(7, 2)}), rank_with({inside(8, 3, 1)}),
                  rank_with({inside(9, 0, 1, 101)}), rank_with({computing(7, 2, 1)})},
      kBuckets);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->kind, Kind::left);
  EXPECT_THAT(verdict->ranks, ElementsAre(0));
  EXPECT_EQ(verdict->text,
            "[watchdog] expected every rank to make the same calls to its end; rank 0, host H, has "
            "left; rank 1 at step 100, in all_reduce of bucket 3 (layers conv4 .. fc1); rank 2 at "
            "step 101, in all_reduce of bucket 0 (layers fc3)");
}

TEST(JudgeDepartures, LetsRanksFinishCollectivesThatTheOtherCompleted) {
  const auto judge = [](const ReplicaView& view) {
    return judge_departures(std::vector{rank_with({at_the_end(8, 500)}), rank_with({view})},
                            kBuckets);
  };
  EXPECT_FALSE(judge(inside(8, 3, 500)));
  EXPECT_FALSE(judge(inside(9, 0, 0.5))) << "it may not be certain yet";
  EXPECT_FALSE(judge(outside(9, 0, 500, Phase::idle)));
  EXPECT_FALSE(judge(at_the_end(9, 500)));
  EXPECT_TRUE(judge(inside(9, 0, 500)));
}

// The end of a training has collectives, and its session continues.
TEST(JudgeDepartures, IgnoresTheEndOfATraining) {
  ReplicaView ending = inside(7, -1, 500);
  ending.state.phase = Phase::ending;
  EXPECT_FALSE(
      judge_departures(std::vector{rank_with({ending}), rank_with({inside(8, 3, 500)})}, kBuckets));
}

// --- Stuck

TEST(JudgeProgress, ReportsAStuckCollective) {
  const auto verdict = progress({rank_with({inside(8, 3, 121)}), rank_with({inside(8, 3, 122)})});
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->kind, Kind::stuck);
  EXPECT_THAT(verdict->ranks, IsEmpty());
  EXPECT_EQ(verdict->text,
            "[watchdog] expected progress within 120 s; no rank has made progress for 121 s: ranks "
            "0,1 are at step 100, in all_reduce of bucket 3 (layers conv4 .. fc1); no rank is "
            "missing, so a connection between them may be broken");
}

TEST(JudgeProgress, AcceptsALongCollectiveWhileAnyReplicaTicks) {
  ReplicaView ticking = inside(8, 3, 500);
  ticking.still_seconds = 1;
  EXPECT_FALSE(progress({rank_with({inside(8, 3, 500)}), rank_with({ticking})}));
}

// A ring that breaks lets some members finish.
TEST(JudgeProgress, ReportsPositionsInABrokenRing) {
  const auto verdict =
      progress({rank_with({inside(8, 3, 130)}), rank_with({inside(9, 0, 130, 101)}),
                rank_with({inside(9, 0, 130, 101)})});
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->kind, Kind::stuck);
  EXPECT_THAT(verdict->text,
              HasSubstr("no rank has made progress for 130 s: rank 0 at step 100, in all_reduce of "
                        "bucket 3 (layers conv4 .. fc1); ranks 1,2 at step 101, in all_reduce of "
                        "bucket 0 (layers fc3); no rank is missing"));
}

// Rank 1 has left a collective that rank 0 cannot leave.
TEST(JudgeProgress, DetectsAReplicaStuckInACollectiveThatOthersLeft) {
  const auto verdict =
      progress({rank_with({inside(8, 3, 130)}), rank_with({outside(8, 3, 130, Phase::update)})});
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->kind, Kind::stuck);
  EXPECT_THAT(verdict->text,
              HasSubstr("rank 1 at step 100, in update, before bucket 0 (layers fc3)"));
}

// --- Still

TEST(JudgeProgress, EndsAJobWithoutProgress) {
  const auto verdict = progress({rank_with({outside(8, 3, 130, Phase::input)}),
                                 rank_with({outside(8, 3, 125, Phase::input)})});
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->kind, Kind::still);
  EXPECT_EQ(verdict->text,
            "[watchdog] expected progress within 120 s; no rank has made progress for 125 s: ranks "
            "0,1 are at step 100, in input, before bucket 0 (layers fc3)");
}

TEST(JudgeProgress, AcceptsAnIdleJobOutsideOfTraining) {
  for (const Phase phase : {Phase::idle, Phase::starting})
    EXPECT_FALSE(progress(
        {rank_with({outside(8, 3, 5000, phase)}), rank_with({outside(8, 3, 5000, phase)})}));
}

TEST(JudgeProgress, RejectsAnIdleReplicaWhileOthersWait) {
  const auto verdict =
      progress({rank_with({outside(7, 2, 130, Phase::idle)}), rank_with({inside(8, 3, 130)})});
  ASSERT_TRUE(verdict);
  EXPECT_THAT(verdict->ranks, ElementsAre(0));
}

TEST(JudgeProgress, IsEmptyForARunningJob) {
  EXPECT_FALSE(progress({rank_with({inside(8, 3, 0.1)}), rank_with({outside(7, 2, 0.2)})}));
  EXPECT_FALSE(progress({rank_with({})}));
}

// --- Liveness

TEST(JudgeLiveness, NamesALostRank) {
  RankView gone = leaving(rank_with({inside(8, 3, 1)}, "K"), Link::gone, "its connection closed");
  gone.silent_seconds = 0.4;
  const auto verdict = liveness({rank_with({inside(8, 3, 1)}), gone});
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->kind, Kind::gone);
  EXPECT_THAT(verdict->ranks, ElementsAre(1));
  EXPECT_EQ(
      verdict->text,
      "[watchdog] expected every rank to stay connected; rank 1, host K, is gone (its connection "
      "closed); 0.4 s before it was at step 100, in all_reduce of bucket 3 (layers conv4 .. fc1)");
}

TEST(JudgeLiveness, ReportsTheLastPositionOfALostRank) {
  const auto computing = liveness({leaving(rank_with({outside(8, 2, 1)}), Link::gone, "x")});
  ASSERT_TRUE(computing);
  EXPECT_THAT(computing->text, HasSubstr("is gone (x); 0.0 s before it was at step 100, in "
                                         "compute, before bucket 3 (layers conv4 .. fc1)"));
  const auto early =
      liveness({leaving(rank_with({outside(0, -1, 1, Phase::starting, -1)}), Link::gone, "x")});
  ASSERT_TRUE(early);
  EXPECT_THAT(early->text,
              HasSubstr("is gone (x); 0.0 s before it was before the first step, in starting"));
}

TEST(JudgeLiveness, NamesASilentRank) {
  RankView silent = rank_with({outside(7, 2, 1)}, "K");
  silent.silent_seconds = 121;
  const auto verdict = liveness({rank_with({inside(8, 3, 100)}), silent});
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->kind, Kind::silent);
  EXPECT_THAT(verdict->ranks, ElementsAre(1));
  EXPECT_EQ(verdict->text,
            "[watchdog] expected a heartbeat from every rank within 120 s; rank 1, host K, has not "
            "been heard from for 121 s (stopped, or its host is unreachable); before that it was "
            "at step 100, in compute, before bucket 3 (layers conv4 .. fc1)");
}

// Their last messages are within one heartbeat of each other. A rank that is merely late is not
// named.
TEST(JudgeLiveness, NamesAllRanksOfADisconnectedHost) {
  RankView first = rank_with({}, "K");
  RankView second = rank_with({}, "K");
  RankView late = rank_with({}, "L");
  first.silent_seconds = 120.1;
  second.silent_seconds = 119.2;
  late.silent_seconds = 50;
  const auto verdict = liveness({rank_with({}), first, second, late});
  ASSERT_TRUE(verdict);
  EXPECT_THAT(verdict->ranks, ElementsAre(1, 2));
}

TEST(JudgeLiveness, ReportsLostRanksBeforeSilentOnes) {
  RankView silent = rank_with({outside(7, 2, 1)});
  silent.silent_seconds = 500;
  const auto verdict =
      liveness({silent, leaving(rank_with({}), Link::gone, "its connection closed")});
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->kind, Kind::gone);
  EXPECT_THAT(verdict->ranks, ElementsAre(1));
  EXPECT_THAT(verdict->text, HasSubstr("is gone (its connection closed); it had not reported yet"));
}

TEST(JudgeLiveness, IgnoresRanksThatHaveLeft) {
  RankView left = leaving(rank_with({outside(7, 2, 1)}), Link::left);
  RankView failed = leaving(rank_with({outside(7, 2, 1)}), Link::failed);
  left.silent_seconds = failed.silent_seconds = 500;
  EXPECT_FALSE(liveness({left, failed}));
}

TEST(JudgeLiveness, WaitsForTheTimeout) {
  RankView quiet = rank_with({});
  quiet.silent_seconds = 119;
  EXPECT_FALSE(liveness({quiet}));
}

}  // namespace
}  // namespace lockstep::inline v0::allreduce
