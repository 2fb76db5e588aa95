#include "lockstep/strategy/replica/local_replicas.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/system/host.h"
#include "lockstep/train/trainer.h"
#include "tests/strategy/training.h"
#include "tests/support/ranks.h"

namespace lockstep::inline v0::train {
using namespace strategy;
namespace {

using allreduce::error_of;

// One bit of one number: the smallest difference.
void flip_a_bit(float& value) {
  value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ 1U);
}

TEST(LocalReplicas, NameATensorThatDiffersInOneBit) {
  job::Session session(0, nullptr, {.quiet = true});
  const auto strategy = local_strategy(session, 3);
  Trainer trainer(*strategy, plain_network());
  LocalReplicas& replicas = trainer.replicas();
  replicas.check_agreement(0);
  const auto& entry = replicas[2].model().parameter_table().entries().back();
  flip_a_bit(replicas[2].model().parameters()[entry.offset + entry.count - 1]);
  EXPECT_EQ(error_of([&] { replicas.check_agreement(7); }),
            fmt::format("[replicas] expected the same values on all replicas after step 7; {} "
                        "differs on replica 2 (rank 0, host {}), since a step after 0",
                        entry.name, host_name()));
}

TEST(LocalReplicas, NameASlotAndTheMinority) {
  job::Session session(0, nullptr, {.quiet = true});
  const auto strategy = local_strategy(session, 3);
  Trainer trainer(*strategy, plain_network());
  LocalReplicas& replicas = trainer.replicas();
  const std::string slot = replicas[0].optimizer().slot_names().back();
  const auto& entry = replicas[0].model().parameter_table().entries().front();
  flip_a_bit(replicas[0].optimizer().slot(slot)[entry.offset]);
  EXPECT_EQ(error_of([&] { replicas.check_agreement(7); }),
            fmt::format("[replicas] expected the same values on all replicas after step 7; {} of "
                        "{} differs on replica 0 (rank 0, host {})",
                        slot, entry.name, host_name()));
}

// Hashes of many tensors are compared in pieces.
TEST(LocalReplicas, NameATensorAfterAThousandOthers) {
  job::Session session(0, nullptr, {.quiet = true});
  const auto strategy = local_strategy(session, 2);
  model::Network network({2}, "deep");
  for (int layer = 0; layer < 350; ++layer) network.add(model::Dense({.units = 2}));
  Trainer trainer(*strategy, std::move(network), {.optimizer = model::Adam{}});
  LocalReplicas& replicas = trainer.replicas();
  const auto& entry = replicas[1].model().parameter_table().entries().back();
  flip_a_bit(replicas[1].optimizer().slot("v")[entry.offset]);
  EXPECT_EQ(error_of([&] { replicas.check_agreement(7); }),
            fmt::format("[replicas] expected the same values on all replicas after step 7; v of {} "
                        "differs on replica 1 (rank 0, host {})",
                        entry.name, host_name()));
}

/// Trains on `replicas`, flips a bit in the last moving statistic of the last replica, and returns
/// the error.
std::string error_of_statistics(int replicas, const NormalizationScope& scope, bool adopts_mean) {
  job::Session session(0, nullptr, {.quiet = true});
  const auto strategy = local_strategy(session, replicas);
  Trainer trainer(*strategy, normalized_network(), {.normalization = scope});
  // 203 samples: the parts are unequal, and in the last step, of 3, the fourth replica has none.
  trainer.fit(small_data().batch(40), {.progress = false, .check_replicas = 1});
  LocalReplicas& local = trainer.replicas();
  if (adopts_mean) local.run([](Replica& replica, int) { replica.adopt_mean_statistics(); });
  local.check_agreement(6);
  model::CompiledModel& last = local[replicas - 1].model();
  flip_a_bit(last.buffers()[last.buffer_table().entries().back().offset]);
  return error_of([&] { local.check_agreement(7); });
}

TEST(LocalReplicas, CompareMovingStatisticsThatMustAgree) {
  const NormalizationScope together{.kind = NormalizationScope::Kind::sync};
  for (const int replicas : {2, 3, 4})
    for (const auto& [scope, adopts_mean] :
         {std::pair(together, false), std::pair(NormalizationScope{}, true)})
      EXPECT_EQ(error_of_statistics(replicas, scope, adopts_mean),
                fmt::format(
                    "[replicas] expected the same values on all replicas after step 7; "
                    "batch_normalization/moving_variance differs on replica {} (rank 0, host {}), "
                    "since a step after 6",
                    replicas - 1, host_name()));
  EXPECT_EQ(error_of_statistics(3, {}, false), "") << "replicas have their own";
}

TEST(LocalReplicas, AverageMovingStatisticsWeightedBySamples) {
  job::Session session(0, nullptr, {.quiet = true});
  const auto strategy = local_strategy(session, 2);
  Trainer trainer(*strategy, normalized_network());
  LocalReplicas& replicas = trainer.replicas();
  // 3 samples: one on the first replica, two on the second.
  const auto stream =
      small_data(3).batch(3).stream({.last_step = 1, .replicas = 2, .local_replicas = 2});
  std::vector<data::Batch> parts;
  ASSERT_TRUE(stream->next(parts));
  replicas.run([&](Replica& replica, int local) {
    replica.train_step(parts[static_cast<std::size_t>(local)], {.learning_rate = 0.1F});
  });
  const auto copy = [&](int local) {
    const auto buffers = replicas[local].model().buffers();
    return std::vector<float>(buffers.begin(), buffers.end());
  };
  const std::vector<float> first = copy(0);
  const std::vector<float> second = copy(1);
  ASSERT_NE(first, second);

  replicas.run([](Replica& replica, int) { replica.install_mean_statistics(); });
  const std::vector<float> mean = copy(0);
  EXPECT_EQ(mean, copy(1));
  for (std::size_t i = 0; i < mean.size(); ++i)
    EXPECT_NEAR(mean[i], (first[i] + 2 * second[i]) / 3, 1e-6);
  replicas.run([](Replica& replica, int) { replica.restore_statistics(); });
  EXPECT_EQ(copy(0), first);
  EXPECT_EQ(copy(1), second);

  replicas.run([](Replica& replica, int) { replica.adopt_mean_statistics(); });
  EXPECT_EQ(copy(0), mean);
  EXPECT_EQ(copy(1), mean);
}

}  // namespace
}  // namespace lockstep::inline v0::train
