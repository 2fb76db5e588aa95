#include "lockstep/job/clock_offset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <vector>

namespace lockstep::inline v0::job {
namespace {

constexpr std::int64_t kMicrosecond = 1000;

/// An exchange sent at `sent` with a clock that is `offset` ahead; the request takes `there` and
/// the answer `back`.
ClockExchange exchange_of(std::int64_t sent, std::int64_t there, std::int64_t back,
                          std::int64_t offset) {
  return {.sent = sent, .theirs = sent + there + offset, .received = sent + there + back};
}

TEST(ClockOffset, IsTheMidpointOfOneExchange) {
  const trace::ClockOffset found =
      estimate_offset(std::vector{exchange_of(5'000, 300, 500, 70'000)});
  EXPECT_EQ(found.time, 75'300);
  EXPECT_EQ(found.offset, 69'900);
  EXPECT_EQ(found.uncertainty, 400);
}

TEST(ClockOffset, CombinesTheFastestRequestAndTheFastestAnswer) {
  const std::vector<ClockExchange> exchanges = {
      exchange_of(0, 20 * kMicrosecond, 200 * kMicrosecond, -7'000'000),
      exchange_of(300 * kMicrosecond, 100 * kMicrosecond, 100 * kMicrosecond, -7'000'000),
      exchange_of(600 * kMicrosecond, 200 * kMicrosecond, 20 * kMicrosecond, -7'000'000)};
  const trace::ClockOffset found = estimate_offset(exchanges);
  EXPECT_LE(found.uncertainty, 21 * kMicrosecond) << "half of the fastest round trip is 100";
  EXPECT_LE(std::abs(found.offset + 7'000'000), found.uncertainty);
}

TEST(ClockOffset, IsWithinItsUncertaintyForAnyDelaysAndDrifts) {
  std::mt19937_64 random(7);
  const auto choose = [&](std::int64_t lowest, std::int64_t highest) {
    return std::uniform_int_distribution<std::int64_t>(lowest, highest)(random);
  };
  for (int trial = 0; trial < 500; ++trial) {
    const std::int64_t offset = choose(-1'000'000'000, 1'000'000'000);
    const double drift = 1e-6 * static_cast<double>(choose(-900, 900));
    const auto offset_at = [&](std::int64_t time) {
      return offset + static_cast<std::int64_t>(drift * static_cast<double>(time));
    };
    std::vector<ClockExchange> exchanges;
    std::int64_t shortest = 1'000'000'000;
    for (std::int64_t sent = 0; exchanges.size() < 100;) {
      const std::int64_t there = choose(10, 60) * kMicrosecond;
      const std::int64_t back = choose(10, 60) * kMicrosecond;
      exchanges.push_back(exchange_of(sent, there, back, offset_at(sent + there)));
      shortest = std::min(shortest, there + back);
      sent = exchanges.back().received;
    }
    const trace::ClockOffset found = estimate_offset(exchanges);
    EXPECT_LE(found.uncertainty, shortest / 2 + 1);
    const std::int64_t actual = offset_at(found.time - offset);
    EXPECT_LE(std::abs(found.offset - actual), found.uncertainty + 1) << trial;
  }
}

TEST(ClockOffset, IsThatOfTheFastestExchangeIfAClockWasSet) {
  const std::vector<ClockExchange> exchanges = {
      exchange_of(0, 50 * kMicrosecond, 50 * kMicrosecond, 3'600'000'000'000),
      exchange_of(200 * kMicrosecond, 40 * kMicrosecond, 40 * kMicrosecond, 0)};
  const trace::ClockOffset found = estimate_offset(exchanges);
  EXPECT_EQ(found.offset, 0);
  EXPECT_EQ(found.uncertainty, 40 * kMicrosecond);
}

}  // namespace
}  // namespace lockstep::inline v0::job
