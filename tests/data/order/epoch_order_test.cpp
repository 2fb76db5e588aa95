#include "lockstep/data/order/epoch_order.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/random/random.h"
#include "tests/data/chi_square.h"

namespace lockstep::inline v0::data {
namespace {

std::vector<std::int64_t> order_of(std::uint64_t seed, std::int64_t epoch,
                                   const OrderShape& shape) {
  const EpochOrder order(seed, epoch, shape);
  std::vector<std::int64_t> ids(static_cast<std::size_t>(shape.records));
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = order[static_cast<std::int64_t>(i)];
  return ids;
}

TEST(OrderShape, ShufflesRecordsIndividuallyIfBlocksDoNotHelp) {
  EXPECT_EQ(choose_order_shape(60'000, 0, 64), (OrderShape{60'000, 64, 1, 1})) << "in memory";
  EXPECT_EQ(choose_order_shape(1'281'167, 110'000, 256).block, 1) << "large records";
  EXPECT_EQ(choose_order_shape(5000, 100, 64).block, 1) << "few records";
  EXPECT_EQ(choose_order_shape(60'000, 800, 64).block, 1)
      << "blocks of 3 records, less than a page";
}

TEST(OrderShape, UsesBlocksOf64KiBIfThereAreEnough) {
  const OrderShape shape = choose_order_shape(100'000'000, 800, 256);
  EXPECT_EQ(shape.block, 81);
  EXPECT_EQ(shape.window, 81 * 64);
  EXPECT_EQ(shape.slots, 256);
  EXPECT_EQ(choose_order_shape(1'000'000, 800, 64).block, 61)
      << "256 blocks for each sample of a batch";
}

class OrderOfBlocks : public ::testing::TestWithParam<OrderShape> {};

TEST_P(OrderOfBlocks, VisitsEveryRecordOnce) {
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    auto ids = order_of(5, epoch, GetParam());
    std::sort(ids.begin(), ids.end());
    std::vector<std::int64_t> all(ids.size());
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(ids, all);
  }
}

TEST_P(OrderOfBlocks, ReadsEveryRecordAheadInTime) {
  const OrderShape shape = GetParam();
  const EpochOrder order(5, 1, shape);
  std::vector<int> read(static_cast<std::size_t>(shape.records));
  for (std::int64_t position = 0; position < shape.records; ++position) {
    order.for_each_block_ahead(position, [&](Range ids) {
      EXPECT_LE(ids.size(), shape.block);
      for (std::int64_t id = ids.begin; id < ids.end; ++id) ++read[static_cast<std::size_t>(id)];
    });
    EXPECT_EQ(read[static_cast<std::size_t>(order[position])] > 0, shape.block > 1) << position;
  }
}

TEST(EpochOrder, ReadsBlocksAheadOnceAfterTheFirstWindows) {
  const OrderShape shape = {100'000, 10, 8, 64};
  const EpochOrder order(5, 1, shape);
  std::vector<int> read(static_cast<std::size_t>(shape.records));
  const std::int64_t windows = shape.slots * shape.window;
  for (std::int64_t position = 2 * windows; position < shape.records; ++position)
    order.for_each_block_ahead(position, [&](Range ids) {
      for (std::int64_t id = ids.begin; id < ids.end; ++id) ++read[static_cast<std::size_t>(id)];
    });
  EXPECT_EQ(*std::max_element(read.begin(), read.end()), 1);
  EXPECT_NEAR(static_cast<double>(std::accumulate(read.begin(), read.end(), std::int64_t{0})),
              static_cast<double>(shape.records - 3 * windows),
              static_cast<double>(shape.slots * shape.block));
}

std::string shape_name(const ::testing::TestParamInfo<OrderShape>& info) {
  return fmt::format("records_{}_slots_{}_block_{}_window_{}", info.param.records, info.param.slots,
                     info.param.block, info.param.window);
}

INSTANTIATE_TEST_SUITE_P(EpochOrder, OrderOfBlocks,
                         ::testing::Values(OrderShape{1, 1, 1, 1}, OrderShape{1000, 7, 1, 1},
                                           OrderShape{1000, 7, 3, 12}, OrderShape{1000, 8, 5, 5},
                                           OrderShape{997, 10, 4, 64}, OrderShape{997, 1, 10, 40},
                                           OrderShape{4096, 64, 8, 32}, OrderShape{10, 64, 3, 6},
                                           OrderShape{64, 64, 4, 8}, OrderShape{10'007, 100, 7, 21},
                                           OrderShape{5, 3, 8, 16}),
                         shape_name);

TEST(EpochOrder, OfSingleRecordsIsThePermutation) {
  const EpochOrder order(1, 1, {60'000, 64, 1, 1});
  EXPECT_EQ(order[0], 12'519);
  EXPECT_EQ(order[12'345], 52'518);
  EXPECT_EQ(order[59'999], 31'481);
}

/// Pinned: a change of the order would give a resumed run other data.
TEST(EpochOrder, IsTheSameInEveryVersion) {
  const EpochOrder order(1, 1, {60'000, 64, 4, 64});
  EXPECT_EQ(order[0], 42'445);
  EXPECT_EQ(order[12'345], 47'870);
  EXPECT_EQ(order[59'999], 12'100);
}

TEST(EpochOrder, ChangesWithSeedAndEpoch) {
  const OrderShape shape = {5000, 10, 5, 20};
  EXPECT_EQ(order_of(1, 0, shape), order_of(1, 0, shape));
  EXPECT_NE(order_of(1, 0, shape), order_of(1, 1, shape));
  EXPECT_NE(order_of(1, 0, shape), order_of(2, 0, shape));
}

TEST(EpochOrder, ChecksThePosition) {
  for (const std::int64_t block : {1, 2}) {
    const EpochOrder order(1, 0, {10, 2, block, 4 * block});
    EXPECT_THROW(order[10], CheckFailure);
    EXPECT_THROW(order[-1], CheckFailure);
  }
}

/// The share of all pages that a rank reads, for the samples of its replicas. Pages and blocks are
/// read as a whole.
double share_of_pages(const OrderShape& shape, std::int64_t records_per_page, int ranks, int rank) {
  const EpochOrder order(3, 0, shape);
  const std::int64_t pages = (shape.records + records_per_page - 1) / records_per_page;
  std::set<std::int64_t> touched;
  for (std::int64_t begin = 0; begin < shape.records; begin += shape.slots) {
    const std::int64_t samples = std::min(shape.slots, shape.records - begin);
    const Range own = split(samples, ranks, rank);
    for (std::int64_t sample = own.begin; sample < own.end; ++sample)
      touched.insert(order[begin + sample] / records_per_page);
  }
  return static_cast<double>(touched.size()) / static_cast<double>(pages);
}

TEST(EpochOrder, EachRankReadsOnlyItsShareOfPages) {
  const OrderShape shape = choose_order_shape(400'000, 512, 8);
  ASSERT_EQ(shape.block, 128);
  for (const int ranks : {2, 3, 4, 8})
    for (const int rank : {0, ranks - 1})
      EXPECT_LT(share_of_pages(shape, 8, ranks, rank), 1.2 / ranks)
          << ranks << " ranks, rank " << rank;
  // The control: without blocks, every rank reads nearly all pages.
  EXPECT_GT(share_of_pages({400'000, 8, 1, 1}, 8, 4, 0), 0.85);
}

/// The sum over all groups of `batches` batches of a label-sorted data set, in deviations.
double label_deviation(const OrderShape& shape, std::int64_t epoch, std::int64_t batches) {
  constexpr std::int64_t kLabels = 10;
  const auto ids = order_of(3, epoch, shape);
  const std::int64_t group = batches * shape.slots;
  const std::int64_t groups = shape.records / group;
  double sum = 0;
  for (std::int64_t i = 0; i < groups; ++i) {
    std::vector<double> counts(kLabels);
    for (std::int64_t position = i * group; position < (i + 1) * group; ++position)
      ++counts[static_cast<std::size_t>(ids[static_cast<std::size_t>(position)] * kLabels /
                                        shape.records)];
    sum += chi_square(counts, static_cast<double>(group) / kLabels);
  }
  return deviations(sum, static_cast<double>(groups * (kLabels - 1)));
}

TEST(EpochOrder, MixesLabelSortedDataInEveryBatchAsATrueShuffleDoes) {
  for (const OrderShape& shape :
       {choose_order_shape(60'000, 800, 100), choose_order_shape(600'000, 800, 100)})
    for (std::int64_t epoch = 0; epoch < 3; ++epoch)
      EXPECT_LT(std::abs(label_deviation(shape, epoch, 1)), 4)
          << shape.records << " records, blocks of " << shape.block << ", epoch " << epoch;
}

TEST(EpochOrder, MixesLabelSortedDataOverSeveralBatchesToo) {
  const OrderShape shape = choose_order_shape(600'000, 800, 100);
  ASSERT_GT(shape.block, 20);
  for (const std::int64_t batches : {2, 10, 50})
    EXPECT_LT(label_deviation(shape, 0, batches), 4) << batches << " batches";
  // The control: with narrow windows, neighbors are in consecutive batches.
  EXPECT_GT(label_deviation({600'000, 100, shape.block, 2 * shape.block}, 0, 10), 20);
}

}  // namespace
}  // namespace lockstep::inline v0::data
