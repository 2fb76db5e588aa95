// Strategies on a machine that pretends to have GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "lockstep/allreduce/algorithm/gpu/nccl.h"
#include "lockstep/base/error.h"
#include "lockstep/device/gpu.h"
#include "lockstep/job/device_share.h"
#include "lockstep/model/zoo/zoo.h"
#include "lockstep/strategy/replica/local_replicas.h"
#include "lockstep/strategy/strategies.h"
#include "lockstep/strategy/trainer.h"
#include "tests/strategy/training.h"
#include "tests/support/device_error.h"
#include "tests/support/pretend_cuda/cudnn_graph.h"
#include "tests/support/pretend_cuda/machine.h"
#include "tests/support/pretend_gpu.h"
#include "tests/support/ranks.h"

namespace lockstep::strategy {
namespace {

using allreduce::error_of;
using allreduce::Route;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<device::Device> kOneGpuTwice(2, pretend::gpus(1).front());

// What all replicas add up to: 0 + 1 + …, in memory of their GPUs.
float sum_over(Strategy& strategy) {
  std::vector<float> sums(static_cast<std::size_t>(strategy.local_replicas()));
  strategy.run([&](int local) {
    const allreduce::Communicator& group = strategy.group(local);
    const device::Buffer buffer = group.allocate(400);
    EXPECT_EQ(buffer.device(), strategy.device(local));
    const std::span<float> values = buffer.as<float>();
    std::ranges::fill(values, static_cast<float>(group.rank()));
    group.all_reduce(values).wait();
    sums[static_cast<std::size_t>(local)] = values[99];
  });
  EXPECT_EQ(sums, std::vector<float>(sums.size(), sums.front()));
  return sums.front();
}

TEST(GpuStrategy, OfOneGpuHasNothingToReduce) {
  job::Session session(0, nullptr);
  const auto strategy = make_strategy(session, "auto", pretend::gpus(1, 3));
  EXPECT_EQ(strategy->name(), "one-device");
  EXPECT_EQ(strategy->route(), "none");
  EXPECT_EQ(strategy->group(0).allocate(100).device(), pretend::gpus(1, 3).front());
}

class StandsStill final : public model::CustomOptimizer {
 public:
  void update(const model::UpdateElements& /*elements*/,
              const model::UpdateNumbers& /*numbers*/) const override {}
};

TEST(GpuStrategy, RefusesAnOptimizerOfTheUsersOwn) {
  job::Session session(0, nullptr);
  const auto strategy = make_strategy(session, "auto", pretend::gpus(1));
  EXPECT_EQ(error_of([&] {
              Trainer(*strategy, plain_network(), {.optimizer = std::make_shared<StandsStill>()});
            }),
            "[custom_optimizer] expected an optimizer of the library on a GPU, got a "
            "CustomOptimizer, which runs on the CPU only");
}

TEST(GpuStrategy, ReducesLogicalReplicasOnTheirGpu) {
  job::Session session(0, nullptr);
  for (const char* name : {"auto", "mirrored", "multi-worker-mirrored"}) {
    const auto strategy = make_strategy(session, name, kOneGpuTwice);
    EXPECT_EQ(strategy->route(), "in-gpu");
    EXPECT_EQ(sum_over(*strategy), 1.0F);
  }
}

TEST(GpuStrategy, ReducesByWayOfTheHostWhereAskedTo) {
  job::Session session(0, nullptr);
  const auto strategy = make_strategy(session, "auto", pretend::gpus(3), {.route = Route::staged});
  EXPECT_EQ(strategy->route(), "staged + in-process");
  EXPECT_EQ(sum_over(*strategy), 3.0F);
}

TEST(GpuStrategy, ReducesBetweenGpusWithNccl) {
  if (allreduce::nccl_built_version() == "absent") GTEST_SKIP() << "this build has no NCCL";
  job::Session session(0, nullptr);
  for (const Route route : {Route::automatic, Route::nccl}) {
    const auto strategy = make_strategy(session, "auto", pretend::gpus(3), {.route = route});
    EXPECT_EQ(strategy->route(), "nccl");
    EXPECT_EQ(sum_over(*strategy), 3.0F);
  }
}

TEST(GpuStrategy, ReducesWithNcclOnOneGpuOnRequest) {
  if (allreduce::nccl_built_version() == "absent") GTEST_SKIP() << "this build has no NCCL";
  job::Session session(0, nullptr);
  const auto strategy = make_strategy(session, "auto", pretend::gpus(1, 2), {.route = Route::nccl});
  EXPECT_EQ(strategy->route(), "nccl");
  EXPECT_EQ(sum_over(*strategy), 0.0F);
}

// Where CUDA waits for all GPUs of the process, no GPU may wait for this replica in a sum.
TEST(GpuStrategy, HasNoSumInFlightWhereItAllocatesOrLoadsKernels) {
  if (allreduce::nccl_built_version() == "absent") GTEST_SKIP() << "this build has no NCCL";
  const pretend::Machine machine({.waits_for_all = true});
  for (const auto wire : {allreduce::WireType::float32, allreduce::WireType::float16}) {
    job::Session session(0, nullptr);
    const auto strategy = make_strategy(session, "auto", pretend::gpus(2));
    TrainerOptions options{.optimizer = model::Sgd{},
                           .normalization = {.kind = NormalizationScope::Kind::sync}};
    options.buckets = {.first_bytes = 64, .bytes = 256, .wire = wire};
    Trainer trainer(*strategy, normalized_network(), options);
    trainer.fit(small_data(100).batch(40), {.epochs = 4, .validation = small_data(50).batch(16)});
  }
}

TEST(GpuStrategy, TellsWhichGpusItUses) {
  job::Session session(0, nullptr);
  const auto strategy = make_strategy(session, "auto", kOneGpuTwice);
  const job::Placement& place = strategy->placements()[1];
  EXPECT_EQ(place.device, "gpu:0");
  EXPECT_EQ(place.gpu.name, "Pretended GPU");
  EXPECT_EQ(place.gpu.uuid, device::list_gpus()[0].uuid);
  EXPECT_EQ(place.gpu.bytes, device::list_gpus()[0].total_bytes);
  EXPECT_THAT(strategy->table(), HasSubstr("Pretended GPU  GPU-00000000"));
}

TEST(GpuStrategy, RefusesRoutesOfTheCpu) {
  job::Session session(0, nullptr);
  EXPECT_EQ(
      error_of([&] { make_strategy(session, "auto", pretend::gpus(2), {.route = Route::ring}); }),
      "[--allreduce] expected ranks started by mpirun for ring; this process was started alone");
  EXPECT_EQ(error_of([&] {
              make_strategy(session, "auto", {pretend::gpus(1).front(), {}});
            }),
            "[--allreduce] expected all replicas on the CPU or all on GPUs, got gpu:0, cpu:0");
  EXPECT_EQ(error_of([&] {
              make_strategy(session, "auto", {{}, {}}, {.route = Route::staged});
            }),
            "[--allreduce] expected replicas on GPUs for staged (or use auto), got cpu:0, cpu:0");
}

// Each context takes half a gigabyte of a real GPU, and in a node where each rank has its GPU,
// gpu:0 is rank 0's alone.
TEST(GpuTraining, TouchesNoGpuButItsOwn) {
  const auto touched = [](const std::vector<device::Device>& devices, Route route) {
    const pretend::NewProcess process;
    {
      job::Session session(0, nullptr);
      const auto strategy = make_strategy(session, "auto", devices, {.route = route});
      Trainer trainer(*strategy, zoo::cnn({12, 12, 1}, 4), {.optimizer = model::Adam{}});
      const data::Dataset data = data::Dataset::synthetic({12, 12, 1}, 4, 40);
      trainer.fit(data.batch(16), {.epochs = 2, .validation = data.batch(16)});
      trainer.evaluate(data.batch(7));
      trainer.predict(data.batch(7), [](const Predictions&) {});
    }
    return pretend::gpus_with_context();
  };
  EXPECT_THAT(touched(pretend::gpus(1, 1), Route::automatic), ElementsAre(1));
  EXPECT_THAT(
      touched(std::vector<device::Device>(2, pretend::gpus(1, 3).front()), Route::automatic),
      ElementsAre(3));
  EXPECT_THAT(touched(pretend::gpus(2, 5), Route::staged), ElementsAre(5, 6));
  if (allreduce::nccl_built_version() == "absent") return;
  EXPECT_THAT(touched(pretend::gpus(2, 5), Route::nccl), ElementsAre(5, 6));
}

TEST(GpuTraining, TriesFusedStatisticsOnlyIfItMay) {
  const std::string folder = testing::TempDir() + "/fused_statistics_of_a_trainer";
  std::filesystem::remove_all(folder);
  ::setenv("LOCKSTEP_CACHE_DIR", folder.c_str(), 1);
  const auto plans = [](model::FusedStatistics when) {
    job::Session session(0, nullptr);
    const auto strategy = make_strategy(session, "auto", pretend::gpus(1));
    Trainer trainer(*strategy, zoo::resnet18({16, 16, 3}, 4, {.width = 4}),
                    {.precision = model::Precision::bfloat16, .fused_statistics = when});
    const std::uint64_t before = pretend::graph_plans();
    trainer.fit(data::Dataset::synthetic({16, 16, 3}, 4, 8).batch(8), {.epochs = 1});
    return pretend::graph_plans() - before;
  };
  EXPECT_EQ(plans(model::FusedStatistics::never), 0U);
  EXPECT_GT(plans(model::FusedStatistics::where_faster), 0U);
  ::unsetenv("LOCKSTEP_CACHE_DIR");
  std::filesystem::remove_all(folder);
}

// The graph API of the pretended cuDNN knows only convolutions with sums.
TEST(GpuTraining, ComputesConvolutionsByTheInterfaceThatIsSelected) {
  job::Session session(0, nullptr);
  const auto strategy = make_strategy(session, "auto", pretend::gpus(1));
  EXPECT_THAT(device_error_of([&] {
                Trainer trainer(*strategy, zoo::cnn({12, 12, 1}, 4),
                                {.convolutions = model::Convolutions::graph});
                trainer.fit(data::Dataset::synthetic({12, 12, 1}, 4, 8).batch(8), {.epochs = 1});
              }),
              HasSubstr("a graph other than a convolution and its sums"));
}

TEST(ChooseDevices, OfOneProcessTakesAllGpus) {
  const job::Session session(0, nullptr);
  const pretend::Machine machine({.gpus = 3});
  EXPECT_EQ(job::choose_devices(session, "auto"), pretend::gpus(3));
  EXPECT_EQ(job::choose_devices(session, "gpu:all"), pretend::gpus(3));
  EXPECT_EQ(job::choose_devices(session, "gpu:2,gpu:2"),
            (std::vector<device::Device>(2, pretend::gpus(1, 2).front())));
}

TEST(ChooseDevices, SaysWhatIsWrongWithTheGpus) {
  job::Session session(0, nullptr);
  {
    const pretend::Machine machine({.gpus = 2});
    EXPECT_EQ(device_error_of([&] { job::choose_devices(session, "gpu:2"); }),
              "[devices] expected gpu:2; this process sees 2 GPUs");
  }
  const pretend::Machine old({.driver_version = 11080});
  EXPECT_EQ(job::choose_devices(session, "auto"), std::vector<device::Device>(1));
  EXPECT_THAT(device_error_of([&] { job::choose_devices(session, "gpu:all"); }),
              HasSubstr("; the NVIDIA driver supports CUDA 11.8 and this build needs " +
                        device::cuda_built_version()));
  EXPECT_THAT(device_error_of([&] { make_strategy(session, "auto", pretend::gpus(1)); }),
              HasSubstr("[devices] expected gpu:0; the NVIDIA driver supports CUDA 11.8"));
}

TEST(GpuStrategy, SaysHowMuchMemoryItNeedsAndFinds) {
  job::Session session(0, nullptr);
  const pretend::Machine machine({.gpus = 1, .bytes_per_gpu = 1'000'000});
  const auto strategy = make_strategy(session, "auto", pretend::gpus(1));
  EXPECT_EQ(
      device_error_of([&] { strategy->run([&](int) { strategy->group(0).allocate(2'000'000); }); }),
      "[memory] expected 2000000 bytes on gpu:0; 1000000 are free");
}

TEST(GpuMemory, RefusesABatchThatDoesNotFitAndNamesOneThatWould) {
  const pretend::Machine machine({.gpus = 1, .bytes_per_gpu = std::size_t{16} << 20});
  const auto fit = [&](std::int64_t batch) {
    job::Session session(0, nullptr);
    const auto strategy = make_strategy(session, "auto", pretend::gpus(1));
    Trainer trainer(*strategy, zoo::cnn({28, 28, 1}, 10));
    trainer.fit(data::Dataset::synthetic({28, 28, 1}, 10, batch).batch(batch),
                {.epochs = 0, .steps = 1});
  };
  const std::string error = device_error_of([&] { fit(512); });
  EXPECT_THAT(error, HasSubstr("[memory] expected "));
  EXPECT_THAT(error, HasSubstr(" MiB of memory on gpu:0 for the activations of 512 samples; "));
  EXPECT_THAT(error, HasSubstr(" MiB are free, enough for about "));
  EXPECT_EQ(device_error_of([&] { fit(16); }), "no error");
}

}  // namespace
}  // namespace lockstep::strategy
