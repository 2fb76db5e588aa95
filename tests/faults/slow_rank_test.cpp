// Trainings in which one rank silently differs from the others: its values are wrong, or it is
// slow.
#include "tests/faults/endings.h"

#include <fmt/format.h>

namespace lockstep::inline v0::faults {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

TEST(OneFlippedBit, IsFoundAtTheNextCheckAndNamed) {
  // With two replicas, it is unknown which one is right; the second is named.
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

/// Expects that only rank 1 is named as slow, in `phase`.
void expect_straggler(const Outcome& outcome, const std::string& phase) {
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_EQ(outcome.left_behind, "");
  const auto lines = outcome.lines_with(" is slow: ");
  EXPECT_EQ(lines.size(), 3U) << outcome.output;
  for (const std::string& line : lines)
    EXPECT_THAT(
        line,
        MatchesRegex(fmt::format(
            ".*step [369]: rank 1 .host {}. is slow: {} takes (9[0-9]|[1-3][0-9][0-9]) ms per "
            "step, the median is .* ms; the others wait .* ms per step for it",
            host_name(), phase)));
}

/// Expects that the verdict on the epoch names rank 1 with `text`.
void expect_verdict(const Outcome& outcome, const std::string& text) {
  const auto lines = outcome.lines_with("verdict: ");
  ASSERT_EQ(lines.size(), 1U) << outcome.output;
  EXPECT_THAT(lines.front(), HasSubstr("verdict: bound by straggler: rank 1 " + text));
}

/// Calls expect(outcome, is_compute) for slow computation and slow input on all routes.
template <typename Expect>
void for_slow_ranks(const Expect& expect) {
  const auto outcomes = on_all_routes({"--fault slow-backward --steps 9 --log-every 3",
                                       "--fault slow-input --steps 9 --log-every 3"});
  for (std::size_t i = 0; i < outcomes.size(); ++i) expect(outcomes[i], i < kRoutes.size());
}

TEST(ASlowRank, IsTheOnlyOneNamedWithItsSlowPhase) {
  for_slow_ranks([](const Outcome& outcome, bool is_compute) {
    expect_straggler(outcome, is_compute ? "compute" : "input");
  });
}

// Long, because other processes make ranks slow, too.
TEST(LongSlowRank, IsNamedInTheVerdict) {
  for_slow_ranks([](const Outcome& outcome, bool is_compute) {
    expect_verdict(outcome, is_compute ? "has " : "waits ");
  });
}

}  // namespace
}  // namespace lockstep::inline v0::faults
