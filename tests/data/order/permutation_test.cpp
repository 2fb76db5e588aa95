#include "lockstep/data/order/epoch_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/random/random.h"
#include "tests/data/chi_square.h"

namespace lockstep::inline v0::data {
namespace {

Permutation permutation_of(std::uint64_t seed, std::int64_t epoch, std::int64_t records) {
  return Permutation(random_key(seed, "epoch order", static_cast<std::uint64_t>(epoch)), records);
}

std::vector<std::int64_t> order_of(std::uint64_t seed, std::int64_t epoch, std::int64_t records) {
  const Permutation order = permutation_of(seed, epoch, records);
  std::vector<std::int64_t> ids(static_cast<std::size_t>(records));
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = order[static_cast<std::int64_t>(i)];
  return ids;
}

TEST(Permutation, VisitsEveryRecordOnce) {
  for (const std::int64_t records :
       {1,  2,  3,   4,    5,    7,    8,      9,      16,     17,    31,
        64, 97, 100, 1009, 4096, 4097, 10'007, 60'000, 65'536, 65'537}) {
    auto ids = order_of(5, 2, records);
    std::sort(ids.begin(), ids.end());
    std::vector<std::int64_t> all(static_cast<std::size_t>(records));
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(ids, all) << records << " records";
  }
}

TEST(Permutation, StaysInRangeForHugeSizes) {
  const std::int64_t records = (std::int64_t{1} << 61) + 1;
  const Permutation order = permutation_of(1, 1, records);
  for (std::int64_t i = 0; i < 1000; ++i) {
    const std::int64_t id = order[records - 1 - i];
    EXPECT_GE(id, 0);
    EXPECT_LT(id, records);
  }
}

TEST(Permutation, DependsOnlyOnSeedAndEpoch) {
  const auto order = order_of(1, 0, 1000);
  EXPECT_EQ(order, order_of(1, 0, 1000));
  EXPECT_NE(order, order_of(1, 1, 1000));
  EXPECT_NE(order, order_of(2, 0, 1000));
  EXPECT_NE(order_of(1, 2, 1000), order_of(2, 1, 1000));
}

/// Pinned: a change of the order would give a resumed run other data.
TEST(Permutation, IsTheSameInEveryVersion) {
  EXPECT_EQ(order_of(1, 0, 10), (std::vector<std::int64_t>{6, 4, 7, 3, 1, 0, 2, 9, 5, 8}));
  const Permutation order = permutation_of(1, 1, 60'000);
  EXPECT_EQ(order[0], 12'519);
  EXPECT_EQ(order[12'345], 52'518);
  EXPECT_EQ(order[59'999], 31'481);
}

TEST(Permutation, ChecksThePosition) {
  const Permutation order = permutation_of(1, 0, 10);
  EXPECT_THROW(order[10], CheckFailure);
  EXPECT_THROW(order[-1], CheckFailure);
  EXPECT_THROW(Permutation(1, 0), CheckFailure);
}

constexpr double kSuspicious =
    4.0;  // one in thirty thousand; the seeds are fixed, so the tests are deterministic

TEST(Permutation, IsUniformOverPermutationsOfFewRecords) {
  for (const std::int64_t records : {2, 3, 4, 5}) {
    std::map<std::vector<std::int64_t>, double> seen;
    int permutations = 1;
    for (int i = 2; i <= records; ++i) permutations *= i;
    const int epochs = 1000 * permutations;
    for (int epoch = 0; epoch < epochs; ++epoch) ++seen[order_of(1, epoch, records)];
    ASSERT_EQ(seen.size(), static_cast<std::size_t>(permutations)) << records << " records";
    std::vector<double> counts;
    for (const auto& [permutation, count] : seen) counts.push_back(count);
    EXPECT_LT(deviations(chi_square(counts, 1000), permutations - 1), kSuspicious)
        << records << " records";
  }
}

TEST(Permutation, IsUniformOverPositions) {
  constexpr std::int64_t kRecords = 23;
  constexpr int kTimes = 1000;  // each record at each position, on average
  constexpr int kEpochs = kTimes * kRecords;
  std::vector<double> counts(kRecords * kRecords);
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const auto ids = order_of(9, epoch, kRecords);
    for (std::size_t i = 0; i < kRecords; ++i)
      ++counts[i * kRecords + static_cast<std::size_t>(ids[i])];
  }
  EXPECT_LT(deviations(chi_square(counts, kTimes), (kRecords - 1) * (kRecords - 1)), kSuspicious);
}

TEST(Permutation, IsUniformOverAdjacentPairs) {
  constexpr std::int64_t kRecords = 260;
  constexpr std::int64_t kPairs = kRecords * (kRecords - 1);
  std::vector<double> counts(kRecords * kRecords);
  for (int epoch = 0; epoch < 10 * kPairs; ++epoch) {
    const Permutation order = permutation_of(9, epoch, kRecords);
    ++counts[static_cast<std::size_t>(order[100] * kRecords + order[101])];
  }
  double chi = 0;
  for (std::int64_t i = 0; i < kRecords * kRecords; ++i) {
    if (i % (kRecords + 1) != 0) chi += chi_square({counts[static_cast<std::size_t>(i)]}, 10);
  }
  EXPECT_LT(deviations(chi, kPairs - 1), kSuspicious);
}

TEST(Permutation, MixesLabelSortedDataInEveryBatch) {
  constexpr std::int64_t kRecords = 60'000;
  constexpr std::int64_t kLabels = 10;
  constexpr std::int64_t kRecordsPerLabel = 10;  // in a batch, on average
  constexpr std::int64_t kBatch = kLabels * kRecordsPerLabel;
  for (std::int64_t epoch = 0; epoch < 5; ++epoch) {
    const auto ids = order_of(3, epoch, kRecords);
    double sum = 0;
    int far = 0;
    for (std::size_t begin = 0; begin < ids.size(); begin += kBatch) {
      std::vector<double> counts(kLabels);
      for (std::size_t i = begin; i < begin + kBatch; ++i)
        ++counts[static_cast<std::size_t>(ids[i] * kLabels / kRecords)];
      const double chi = chi_square(counts, kRecordsPerLabel);
      sum += chi;
      far += chi > 27.88;  // one in a thousand
    }
    // 600 batches with 9 degrees of freedom each; a sum too far below is as suspicious as above.
    const double z = deviations(sum, 600 * (kLabels - 1));
    EXPECT_LT(std::abs(z), kSuspicious) << "epoch " << epoch;
    EXPECT_LE(far, 5) << "epoch " << epoch;
  }
}

TEST(Permutation, HasRandomNumbersOfFixedPointsAndNeighbors) {
  constexpr std::int64_t kRecords = 10'007;
  constexpr int kEpochs = 400;
  int fixed = 0;
  int successors = 0;
  int predecessors = 0;
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const auto ids = order_of(4, epoch, kRecords);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      fixed += ids[i] == static_cast<std::int64_t>(i);
      if (i == 0) continue;
      successors += ids[i] == ids[i - 1] + 1;
      predecessors += ids[i] == ids[i - 1] - 1;
    }
  }
  // Each is close to Poisson with mean 1 per epoch.
  const double slack = kSuspicious * std::sqrt(kEpochs);
  EXPECT_NEAR(fixed, kEpochs, slack);
  EXPECT_NEAR(successors, kEpochs, slack);
  EXPECT_NEAR(predecessors, kEpochs, slack);
}

TEST(Permutation, IsIndependentBetweenEpochs) {
  constexpr std::int64_t kRecords = 10'000;
  for (std::int64_t epoch = 0; epoch < 20; ++epoch) {
    const auto first = order_of(1, epoch, kRecords);
    const auto second = order_of(1, epoch + 1, kRecords);
    double product = 0;
    int same = 0;
    for (std::size_t i = 0; i < first.size(); ++i) {
      constexpr double kMean = (kRecords - 1) / 2.0;
      product += (static_cast<double>(first[i]) - kMean) * (static_cast<double>(second[i]) - kMean);
      same += first[i] == second[i];
    }
    const double variance = (static_cast<double>(kRecords) * kRecords - 1) / 12;
    EXPECT_LT(std::abs(product / kRecords / variance), kSuspicious / std::sqrt(kRecords))
        << "epoch " << epoch;
    EXPECT_LE(same, 8) << "epoch " << epoch;
  }
}

}  // namespace
}  // namespace lockstep::inline v0::data
