// Ranks that divide, share or contend for simulated GPUs; run under mpirun on 1 to 4 ranks.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/allreduce/groups/groups.h"
#include "lockstep/base/error.h"
#include "lockstep/base/system/host.h"
#include "lockstep/device/gpu.h"
#include "lockstep/job/placement/device_share.h"
#include "lockstep/strategy/replica/local_replicas.h"
#include "lockstep/strategy/strategies.h"
#include "tests/strategy/training.h"
#include "tests/support/mpi_session.h"
#include "tests/support/pretend_cuda/machine.h"
#include "tests/support/pretend_gpu.h"
#include "tests/support/ranks.h"

namespace lockstep::inline v0::train {
using namespace strategy;
namespace {

using allreduce::error_of;
using allreduce::Route;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

int ranks() { return job::mpi_session().size(); }
int rank() { return job::mpi_session().rank(); }

void expect_sum_of_replicas(Strategy& strategy) {
  const int replicas = strategy.num_replicas_in_sync();
  strategy.run([&](int local) {
    const allreduce::Communicator& group = strategy.group(local);
    const device::Buffer buffer = group.allocate(400);
    std::ranges::fill(buffer.as<float>(), static_cast<float>(group.rank()));
    group.all_reduce(buffer.as<float>()).wait();
    EXPECT_EQ(buffer.as<float>()[99], static_cast<float>(allreduce::sum_of_ranks(replicas)));
  });
}

TEST(GpusOfRanks, AreOneEachByLocalRank) {
  const pretend::Machine machine({.gpus = ranks()});
  const std::vector<device::Device> mine = job::choose_devices(job::mpi_session(), "auto");
  EXPECT_EQ(mine, pretend::gpus(1, rank()));
  const auto strategy = make_strategy(job::mpi_session(), "auto", mine);
  expect_sum_of_replicas(*strategy);
  EXPECT_EQ(strategy->placements()[static_cast<std::size_t>(rank())].gpu.uuid,
            device::list_gpus()[static_cast<std::size_t>(rank())].uuid);
  if (ranks() == 1) return;
  EXPECT_EQ(strategy->selection().reason, fmt::format("GPUs of {} ranks", ranks()));
}

TEST(GpusOfRanks, AreDividedOnRequestOfAll) {
  const pretend::Machine machine({.gpus = 2 * ranks()});
  EXPECT_EQ(job::choose_devices(job::mpi_session(), "gpu:all"), pretend::gpus(2, 2 * rank()));
}

TEST(GpusOfRanks, AreTooFewForMoreRanks) {
  if (ranks() == 1) GTEST_SKIP() << "one rank has enough";
  const pretend::Machine machine({.gpus = 1});
  EXPECT_EQ(error_of([] { job::choose_devices(job::mpi_session(), "auto"); }),
            fmt::format("[devices] expected a GPU for each rank of a node: start fewer ranks "
                        "there, or let them share with --share-gpus; the {} ranks on {} see 1",
                        ranks(), host_name()));
  EXPECT_EQ(job::choose_devices(job::mpi_session(), "auto", true), pretend::gpus(1));
}

TEST(GpusOfRanks, MustDifferByDefault) {
  if (ranks() == 1) GTEST_SKIP() << "one rank has its GPU for itself";
  for (const Route route : {Route::automatic, Route::nccl, Route::staged}) {
    try {
      make_strategy(job::mpi_session(), "auto", pretend::gpus(1), {.route = route});
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(exit_status(error.category()), 5);
      EXPECT_EQ(std::string(error.what()),
                fmt::format("[devices] expected a GPU for each rank: let --devices auto choose, "
                            "give each rank its own with --devices gpu:N or CUDA_VISIBLE_DEVICES, "
                            "or allow this with --share-gpus; rank 0 (gpu:0) and rank 1 (gpu:0) on "
                            "{} both have GPU-00000000-0000-0000-0000-000000000000",
                            host_name()));
    }
  }
}

TEST(GpusOfRanks, MayBeVisibleToOneRankEach) {
  const pretend::Machine machine({.gpus = 1, .first_gpu = rank()});
  EXPECT_EQ(job::choose_devices(job::mpi_session(), "auto"), pretend::gpus(1));
  const auto strategy =
      make_strategy(job::mpi_session(), "auto", pretend::gpus(1), {.route = Route::staged});
  expect_sum_of_replicas(*strategy);
}

TEST(GpusOfRanks, AreComparedByIdentity) {
  if (ranks() != 2) GTEST_SKIP() << "two ranks are enough";
  const pretend::Machine machine({.gpus = 2 - rank(), .first_gpu = rank()});
  EXPECT_THAT(
      error_of([] { make_strategy(job::mpi_session(), "auto", pretend::gpus(1, 1 - rank())); }),
      HasSubstr("; rank 0 (gpu:1) and rank 1 (gpu:0) on " + host_name() +
                " both have GPU-00000001-"));
}

TEST(GpusOfRanks, AreSharedOnRequest) {
  for (const Route route : {Route::automatic, Route::staged}) {
    const auto strategy = make_strategy(job::mpi_session(), "auto", pretend::gpus(1),
                                        {.route = route, .share_gpus = true});
    expect_sum_of_replicas(*strategy);
    EXPECT_EQ(strategy->route(), ranks() > 1 ? "staged + shared-memory" : "none");
  }
}

TEST(GpusOfRanks, AreSharedByTheReplicasOfARank) {
  const std::vector<device::Device> mine(2, pretend::gpus(1, rank()).front());
  const auto strategy = make_strategy(job::mpi_session(), "auto", mine);
  EXPECT_EQ(strategy->num_replicas_in_sync(), 2 * ranks());
  EXPECT_EQ(strategy->route(), ranks() == 1 ? "in-gpu" : "staged + in-process + shared-memory");
  expect_sum_of_replicas(*strategy);
}

TEST(GpusOfRanks, DoNotUseNcclWhenShared) {
  if (ranks() == 1) GTEST_SKIP() << "one rank has its GPU for itself";
  if (allreduce::error_of([] { allreduce::require_devices(Route::nccl, pretend::gpus(1)); }) != "")
    GTEST_SKIP() << "there is none";
  EXPECT_EQ(error_of([] {
              make_strategy(job::mpi_session(), "auto", pretend::gpus(1),
                            {.route = Route::nccl, .share_gpus = true});
            }),
            "[--allreduce] expected auto or staged when replicas share a GPU, got nccl");
}

struct Trained {
  bool recorded = false;
  Outcome outcome;
};

// 203 samples in batches of 40: the last one of an epoch has 3, which may be fewer than ranks.
Trained train_on_gpus(const std::vector<device::Device>& devices,
                      const StrategyOptions& strategy_options, const TrainerOptions& options,
                      const model::Network& network) {
  const auto strategy = make_strategy(job::mpi_session(), "auto", devices, strategy_options);
  const auto recorder = std::make_shared<StepRecorder>();
  Trainer trainer(*strategy, network, options);
  FitOptions fit{.epochs = 5, .validation = small_data(50).batch(16)};
  fit.callbacks.push_back(recorder);
  Trained trained;
  trained.recorded = trainer.replicas()[0].records_steps();
  trained.outcome.history = trainer.fit(small_data().shuffle().batch(40), fit);
  trained.outcome.losses = recorder->losses;
  return trained;
}

// With NCCL between one GPU of each rank, reductions are part of the recordings.
TEST(GpusOfRanks, RecordTheirReductions) {
  if (error_of([] { allreduce::require_devices(Route::nccl, pretend::gpus(1)); }) != "")
    GTEST_SKIP() << "there is no NCCL";
  const std::vector<device::Device> mine = pretend::gpus(1, rank());
  for (const auto wire : {allreduce::WireType::float32, allreduce::WireType::bfloat16}) {
    TrainerOptions options{.optimizer = model::Adam{}};
    options.buckets = {.first_bytes = 64, .bytes = 256, .wire = wire};
    TrainerOptions plainly = options;
    plainly.records_steps = false;
    const Trained plain = train_on_gpus(mine, {}, plainly, dropout_network());
    const Trained recorded = train_on_gpus(mine, {}, options, dropout_network());
    EXPECT_FALSE(plain.recorded);
    EXPECT_TRUE(recorded.recorded);
    EXPECT_EQ(recorded.outcome.losses, plain.outcome.losses);
    EXPECT_EQ(recorded.outcome.history.end.parameter_hash,
              plain.outcome.history.end.parameter_hash);
  }
}

// Changes the bucket size of all local replicas in the middle of a training.
class ChangeBuckets final : public Callback {
 public:
  explicit ChangeBuckets(LocalReplicas& replicas) : replicas_(replicas) {}
  void on_batch_end(const StepLogs& logs) override {
    if (logs.step == 5)
      replicas_.run([](Replica& replica, int) { replica.set_bucket_bytes(4096); });
  }

 private:
  LocalReplicas& replicas_;
};

// Earlier recordings refer to freed memory of the buckets.
TEST(GpusOfRanks, RecordAgainWhenBucketsChange) {
  if (error_of([] { allreduce::require_devices(Route::nccl, pretend::gpus(1)); }) != "")
    GTEST_SKIP() << "there is no NCCL";
  std::vector<double> losses[2];
  for (const bool records : {false, true}) {
    TrainerOptions options{.optimizer = model::Adam{}, .records_steps = records};
    options.buckets = {.first_bytes = 64, .bytes = 256, .wire = allreduce::WireType::bfloat16};
    const auto strategy = make_strategy(job::mpi_session(), "auto", pretend::gpus(1, rank()));
    Trainer trainer(*strategy, plain_network(), options);
    const auto recorder = std::make_shared<StepRecorder>();
    FitOptions fit{.epochs = 4};
    fit.callbacks = {recorder, std::make_shared<ChangeBuckets>(trainer.replicas())};
    trainer.fit(small_data().shuffle().batch(40), fit);
    losses[records ? 1 : 0] = recorder->losses;
  }
  EXPECT_EQ(losses[1], losses[0]);
}

TEST(GpusOfRanks, ReportWhetherNcclReachesAllNodes) {
  if (job::mpi_session().nodes() == 1 ||
      error_of([] { allreduce::require_devices(Route::nccl, pretend::gpus(1)); }) != "")
    GTEST_SKIP() << "there is no NCCL, or one node";
  const auto strategy = make_strategy(job::mpi_session(), "auto", pretend::gpus(1, rank()));
  EXPECT_EQ(strategy->selection().reason,
            fmt::format("GPUs of {0} ranks; NCCL reaches all {0}", ranks()));
  EXPECT_EQ(strategy->route(), "nccl");
}

TEST(GpusOfRanks, RecordReductionsOfStatistics) {
  if (error_of([] { allreduce::require_devices(Route::nccl, pretend::gpus(1)); }) != "")
    GTEST_SKIP() << "there is no NCCL";
  TrainerOptions options{.optimizer = model::Sgd{},
                         .normalization = {.kind = NormalizationScope::Kind::sync}};
  TrainerOptions plainly = options;
  plainly.records_steps = false;
  const std::vector<device::Device> mine = pretend::gpus(1, rank());
  const Trained recorded = train_on_gpus(mine, {}, options, normalized_network());
  EXPECT_TRUE(recorded.recorded);
  EXPECT_EQ(recorded.outcome.losses,
            train_on_gpus(mine, {}, plainly, normalized_network()).outcome.losses);
}

// Otherwise gpu:0 would hold a context of each rank.
TEST(GpusOfRanks, AreNotTouchedByOtherRanks) {
  for (const Route route : {Route::automatic, Route::staged}) {
    const pretend::NewProcess process;
    train_on_gpus(pretend::gpus(1, rank() + 1), {.route = route}, {.optimizer = model::Adam{}},
                  plain_network());
    EXPECT_THAT(pretend::gpus_with_context(), ElementsAre(rank() + 1));
  }
}

/// A strategy of a rank that trains alone.
class Alone final : public Strategy {
 public:
  explicit Alone(device::Device gpu)
      : Strategy(job::mpi_session(), {gpu}, allreduce::make_device_group({gpu}),
                 allreduce::make_in_process_group(1).front(), {}) {}
  std::string name() const override { return "alone"; }
};

// All ranks match training on one GPU.
TEST(GpusOfRanks, HaveTheLossesOfOneGpu) {
  const TrainerOptions options{.optimizer = model::Adam{}};
  Alone alone(pretend::gpus(1, rank()).front());
  const Outcome expected =
      train(alone, plain_network(), small_data().shuffle().batch(40), options, {.epochs = 5});
  for (const Route route : {Route::automatic, Route::staged}) {
    const Trained together =
        train_on_gpus(pretend::gpus(1, rank()), {.route = route}, options, plain_network());
    ASSERT_EQ(together.outcome.losses.size(), expected.losses.size());
    for (std::size_t step = 0; step < expected.losses.size(); ++step)
      EXPECT_NEAR(together.outcome.losses[step], expected.losses[step],
                  1e-4 * expected.losses[step])
          << step;
  }
}

// Host reductions run between pieces of the recordings.
TEST(GpusOfRanks, RecordStepsAroundHostReductions) {
  TrainerOptions options{.optimizer = model::Adam{}};
  options.buckets = {.first_bytes = 64, .bytes = 256};
  TrainerOptions plainly = options;
  plainly.records_steps = false;
  for (const auto& mine : {pretend::gpus(1, rank()), pretend::gpus(2, 2 * rank())}) {
    const Trained recorded =
        train_on_gpus(mine, {.route = Route::staged}, options, dropout_network());
    EXPECT_TRUE(recorded.recorded);
    EXPECT_EQ(
        recorded.outcome.losses,
        train_on_gpus(mine, {.route = Route::staged}, plainly, dropout_network()).outcome.losses);
  }
}

TEST(GpusOfRanks, RejectCpuRoutes) {
  if (ranks() == 1) GTEST_SKIP() << "one rank needs no route";
  EXPECT_EQ(error_of([] {
              make_strategy(job::mpi_session(), "auto", pretend::gpus(1, rank()),
                            {.route = Route::ring});
            }),
            "[--allreduce] expected auto, hierarchical, nccl or staged between GPUs of several "
            "ranks, got ring");
}

}  // namespace
}  // namespace lockstep::inline v0::train
