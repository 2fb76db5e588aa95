#include "lockstep/data/order/interleave_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace lockstep::inline v0::data {

void PrintTo(const InterleaveOrder::Position& position, std::ostream* out) {
  *out << position.input << ":" << position.index;
}

namespace {

using Positions = std::vector<InterleaveOrder::Position>;

Positions by_formula(const std::vector<std::int64_t>& sizes, std::int64_t cycle_length,
                     std::int64_t block_length) {
  const InterleaveOrder order(sizes, cycle_length, block_length);
  Positions places;
  for (std::int64_t i = 0; i < std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}); ++i)
    places.push_back(order[i]);
  return places;
}

/// Reference: element by element, with slots that open inputs and find them exhausted.
Positions one_by_one(const std::vector<std::int64_t>& sizes, std::size_t cycle_length,
                     std::int64_t block_length) {
  constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::vector<std::size_t> slots(cycle_length, kNone);
  std::vector<std::int64_t> used(sizes.size(), 0);
  Positions places;
  std::size_t opened = 0;
  const auto left = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  for (std::size_t slot = 0; std::ssize(places) < left; slot = (slot + 1) % cycle_length) {
    if (slots[slot] == kNone && opened < sizes.size()) slots[slot] = opened++;
    const std::size_t input = slots[slot];
    for (std::int64_t i = 0; input != kNone && i < block_length; ++i) {
      if (used[input] == sizes[input]) {
        slots[slot] = kNone;
        break;
      }
      places.push_back({input, used[input]++});
    }
  }
  return places;
}

std::vector<std::size_t> inputs_of(const Positions& places) {
  std::vector<std::size_t> inputs;
  for (const auto& position : places) inputs.push_back(position.input + 1);
  return inputs;
}

// The example in the documentation of tf.data.Dataset.interleave: 1 to 5, each six times.
TEST(InterleaveOrder, MatchesTfData) {
  EXPECT_THAT(inputs_of(by_formula({6, 6, 6, 6, 6}, 2, 4)),
              testing::ElementsAre(1, 1, 1, 1, 2, 2, 2, 2, 1, 1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 3, 3,
                                   4, 4, 5, 5, 5, 5, 5, 5));
}

// The result of tf.data 2 for inputs of 4, 5 and 6 elements, twice.
TEST(InterleaveOrder, ReplacesAnEndedInputInTheNextRound) {
  const auto sizes_of = [](const std::vector<std::int64_t>& sizes, std::int64_t cycle_length,
                           std::int64_t block_length) {
    std::vector<std::int64_t> values;
    for (const auto& position : by_formula(sizes, cycle_length, block_length))
      values.push_back(sizes[position.input]);
    return values;
  };
  const std::vector<std::int64_t> twice = {4, 5, 6, 4, 5, 6};
  EXPECT_THAT(sizes_of(twice, 1, 1),
              testing::ElementsAre(4, 4, 4, 4, 5, 5, 5, 5, 5, 6, 6, 6, 6, 6, 6, 4, 4, 4, 4, 5, 5, 5,
                                   5, 5, 6, 6, 6, 6, 6, 6));
  EXPECT_THAT(sizes_of(twice, 2, 1),
              testing::ElementsAre(4, 5, 4, 5, 4, 5, 4, 5, 5, 6, 6, 4, 6, 4, 6, 4, 6, 4, 6, 5, 6, 5,
                                   6, 5, 6, 5, 6, 5, 6, 6));
  EXPECT_THAT(sizes_of(twice, 2, 3),
              testing::ElementsAre(4, 4, 4, 5, 5, 5, 4, 5, 5, 6, 6, 6, 4, 4, 4, 6, 6, 6, 4, 5, 5, 5,
                                   6, 6, 6, 5, 5, 6, 6, 6));
  EXPECT_THAT(sizes_of(twice, 7, 2),
              testing::ElementsAre(4, 4, 5, 5, 6, 6, 4, 4, 5, 5, 6, 6, 4, 4, 5, 5, 6, 6, 4, 4, 5, 5,
                                   6, 6, 5, 6, 6, 5, 6, 6));
  EXPECT_THAT(sizes_of({4, 0, 6, 4, 0, 6}, 2, 1),
              testing::ElementsAre(4, 4, 6, 4, 6, 4, 6, 6, 4, 6, 4, 6, 4, 4, 6, 6, 6, 6, 6, 6));
}

TEST(InterleaveOrder, ReadsEachInputFromItsBeginningToItsEnd) {
  EXPECT_EQ(by_formula({3, 1}, 2, 2), (Positions{{0, 0}, {0, 1}, {1, 0}, {0, 2}}));
}

TEST(InterleaveOrder, MatchesSlotsVisitedOneByOne) {
  std::mt19937 random(1);
  const auto below = [&](int end) {
    return static_cast<int>(random() % static_cast<unsigned>(end));
  };
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(1 + below(9)));
    for (std::int64_t& size : sizes) size = below(trial % 2 == 0 ? 4 : 30);
    const int cycle_length = 1 + below(6);
    const int block_length = 1 + below(7);
    ASSERT_EQ(by_formula(sizes, cycle_length, block_length),
              one_by_one(sizes, static_cast<std::size_t>(cycle_length), block_length))
        << testing::PrintToString(sizes) << ", cycle " << cycle_length << ", block "
        << block_length;
  }
}

TEST(InterleaveOrder, FindsPositionsInHugeInputs) {
  constexpr std::int64_t kMany = std::int64_t{1} << 40;
  const InterleaveOrder order(std::vector<std::int64_t>{kMany, 2 * kMany, 3}, 2, 1);
  EXPECT_EQ(order[0], (InterleaveOrder::Position{0, 0}));
  EXPECT_EQ(order[2 * kMany - 1], (InterleaveOrder::Position{1, kMany - 1}));
  EXPECT_EQ(order[2 * kMany], (InterleaveOrder::Position{1, kMany}))
      << "the first input has just ended";
  EXPECT_EQ(order[2 * kMany + 1], (InterleaveOrder::Position{2, 0}));
  EXPECT_EQ(order[3 * kMany + 2], (InterleaveOrder::Position{1, 2 * kMany - 1}));
}

}  // namespace
}  // namespace lockstep::inline v0::data
