// Trainings in which one rank is not what the others are, and says nothing: it computes something
// else, or is slow.
#include "tests/faults/endings.h"

#include <fmt/format.h>

namespace lockstep::faults {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

TEST(OneBitOfOneWeight, IsFoundAtTheNextCheckAndNamed) {
  // Of two replicas nobody knows which one is right; the second is named.
  for (const Outcome& outcome :
       on_all_routes({"--fault flips-a-bit --step 5 --check-replicas 4"})) {
    EXPECT_THAT(expect_failure(outcome),
                EndsWith(fmt::format(
                    "[replicas] expected the same values on all replicas after step 8; "
                    "dense_1/kernel differs on replica 1 (rank 1, host {}), since a step after 4",
                    host_name())));
    EXPECT_EQ(outcome.status, 4);
    EXPECT_TRUE(outcome.lines_with("step 9 done").empty());
  }
}

/// Rank 1 and nobody else is slow, and by `phase`.
void expect_straggler(const Outcome& outcome, const std::string& phase) {
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_EQ(outcome.left_behind, "");
  const auto lines = outcome.lines_with(" is slow: ");
  EXPECT_EQ(lines.size(), 3U) << outcome.output;
  for (const std::string& line : lines)
    EXPECT_THAT(line, MatchesRegex(fmt::format(
                          ".*step [369]: rank 1 .host {}. is slow: {} takes [1-3][0-9][0-9] ms per "
                          "step, the median is .* ms; the others wait .* ms per step for it",
                          host_name(), phase)));
}

/// The verdict on the epoch too.
void expect_verdict(const Outcome& outcome, const std::string& text) {
  const auto lines = outcome.lines_with("verdict: ");
  ASSERT_EQ(lines.size(), 1U) << outcome.output;
  EXPECT_THAT(lines.front(), HasSubstr("verdict: bound by straggler: rank 1 " + text));
}

/// For both kinds of slowness on all routes: expect(outcome, whether it computes slowly).
template <typename Expect>
void for_slow_ranks(const Expect& expect) {
  const auto outcomes = on_all_routes({"--fault slow-backward --steps 9 --log-every 3",
                                       "--fault slow-input --steps 9 --log-every 3"});
  for (std::size_t i = 0; i < outcomes.size(); ++i) expect(outcomes[i], i < kRoutes.size());
}

TEST(ASlowRank, IsNamedWithWhatItIsSlowAtAndNobodyElse) {
  for_slow_ranks([](const Outcome& outcome, bool is_compute) {
    expect_straggler(outcome, is_compute ? "compute" : "input");
  });
}

// Where nothing else runs: other processes make ranks slow, too.
TEST(LongSlowRank, IsWhatTheVerdictNames) {
  for_slow_ranks([](const Outcome& outcome, bool is_compute) {
    expect_verdict(outcome, is_compute ? "has " : "waits ");
  });
}

}  // namespace
}  // namespace lockstep::faults
