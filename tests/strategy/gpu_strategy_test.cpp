// Strategies on simulated GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <filesystem>

#include "lockstep/allreduce/algorithm/gpu/nccl.h"
#include "lockstep/base/error.h"
#include "lockstep/device/gpu.h"
#include "lockstep/job/placement/device_share.h"
#include "lockstep/model/zoo/zoo.h"
#include "lockstep/strategy/replica/local_replicas.h"
#include "lockstep/strategy/strategies.h"
#include "lockstep/train/trainer.h"
#include "tests/strategy/training.h"
#include "tests/support/device_error.h"
#include "tests/support/pretend_cuda/cudnn_graph.h"
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

const std::vector<device::Device> kOneGpuTwice(2, pretend::gpus(1).front());

// Sums the ranks of all replicas, 0 + 1 + …, in the memory of their GPUs.
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

/// Steps of one replica with the next batch known, as in a training that reads ahead.
class ReadAhead {
 public:
  static constexpr std::int64_t kSteps = 8;

  explicit ReadAhead(bool records_steps)
      : strategy_(make_strategy(session_, "auto", pretend::gpus(1))),
        replicas_(*strategy_, std::make_shared<const model::Network>(zoo::cnn({12, 12, 1}, 4)),
                  {.optimizer = model::Adam{},
                   .compute = {.deterministic = true},
                   .records_steps = records_steps}) {
    replicas_.initialize(1);
    const auto stream = data::Dataset::synthetic({12, 12, 1}, 4, 8 * kSteps)
                            .batch(8)
                            .stream({.last_step = kSteps, .pixels = true});
    for (std::vector<data::Batch>& batch : batches_) EXPECT_TRUE(stream->next(batch));
  }

  /// The loss of the step.
  double train(std::int64_t step) {
    const bool has_next = step + 1 < kSteps;
    const StepResult result = replicas_[0].train_step(
        batch(step), {.step = step, .update = step + 1, .learning_rate = 0.01F, .staged = step > 0},
        has_next ? &batch(step + 1) : nullptr);
    return result.report.metrics.loss_sum;
  }
  double evaluate(std::int64_t step) {
    model::MetricTotals totals;
    return replicas_[0].evaluate(batch(step), totals).loss_sum;
  }

 private:
  const data::Batch& batch(std::int64_t step) const {
    return batches_[static_cast<std::size_t>(step)].front();
  }

  job::Session session_{0, nullptr};
  std::unique_ptr<Strategy> strategy_;
  LocalReplicas replicas_;
  std::array<std::vector<data::Batch>, kSteps> batches_;
};

// Between two recordings the GPU waits for the host.
TEST(GpuTraining, MakesFewCallsBetweenTwoRecordings) {
  using pretend::Call;
  ReadAhead training(true);
  for (std::int64_t step = 0; step < ReadAhead::kSteps; ++step) {
    const std::uint64_t commands = pretend::calls(Call::command);
    const std::uint64_t waits = pretend::calls(Call::wait);
    const std::uint64_t graphs = pretend::calls(Call::graph);
    training.train(step);
    if (step <= StepRecordings::kPlainSteps) continue;
    EXPECT_EQ(pretend::calls(Call::graph) - graphs, 1U);
    // The upload of the update's constants.
    EXPECT_EQ(pretend::commands_before_graph() - commands, 1U);
    if (step + 1 == ReadAhead::kSteps) continue;
    // Afterwards: the end of the step; for the next batch its transfer, with a wait and an event,
    // and its conversion, with a wait, targets and an event; and the times of the step.
    EXPECT_EQ(pretend::calls(Call::command) - commands, 1U + 1U + 3U + 4U + 3U);
    EXPECT_EQ(pretend::calls(Call::wait) - waits, 1U);  // for the buffer of the batch before
  }
}

// An evaluation or another pass overwrites the memory of the staged next batch.
TEST(GpuTraining, ReloadsABatchThatAnotherPassOverwrote) {
  std::array<std::vector<double>, 2> losses;
  for (const bool records_steps : {false, true}) {
    ReadAhead training(records_steps);
    for (std::int64_t step = 0; step < ReadAhead::kSteps; ++step) {
      losses[records_steps ? 1 : 0].push_back(training.train(step));
      if (step % 2 == 0) losses[records_steps ? 1 : 0].push_back(training.evaluate(step));
    }
  }
  EXPECT_EQ(losses[1], losses[0]);
}

class StandsStill final : public model::CustomOptimizer {
 public:
  void update(const model::UpdateElements& /*elements*/,
              const model::UpdateNumbers& /*numbers*/) const override {}
};

TEST(GpuStrategy, RejectsUserDefinedOptimizers) {
  job::Session session(0, nullptr);
  const auto strategy = make_strategy(session, "auto", pretend::gpus(1));
  EXPECT_EQ(error_of([&] {
              Trainer(*strategy, plain_network(), {.optimizer = std::make_shared<StandsStill>()});
            }),
            "[custom_optimizer] expected a built-in optimizer on a GPU, got a "
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

TEST(GpuStrategy, ReducesThroughTheHostOnRequest) {
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

// CUDA may wait for all GPUs of the process, so none may wait for this replica in a reduction.
TEST(GpuStrategy, HasNoReductionInFlightDuringAllocation) {
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

TEST(GpuStrategy, ReportsItsGpus) {
  job::Session session(0, nullptr);
  const auto strategy = make_strategy(session, "auto", kOneGpuTwice);
  const job::Placement& place = strategy->placements()[1];
  EXPECT_EQ(place.device, "gpu:0");
  EXPECT_EQ(place.gpu.name, "Pretended GPU");
  EXPECT_EQ(place.gpu.uuid, device::list_gpus()[0].uuid);
  EXPECT_EQ(place.gpu.bytes, device::list_gpus()[0].total_bytes);
  EXPECT_THAT(strategy->table(), HasSubstr("Pretended GPU  GPU-00000000"));
}

TEST(GpuStrategy, RejectsCpuRoutes) {
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

// Each context uses half a gigabyte of a real GPU, and if each rank has its GPU, only rank 0 uses
// gpu:0.
TEST(GpuTraining, UsesOnlyItsGpu) {
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

TEST(GpuTraining, TriesFusedStatisticsOnlyIfAllowed) {
  const std::string folder = testing::TempDir() + "/fused_statistics_of_a_trainer";
  std::filesystem::remove_all(folder);
  ::setenv("LOCKSTEP_CACHE_DIR", folder.c_str(), 1);
  const auto plans = [](model::FusedStatistics when) {
    job::Session session(0, nullptr);
    const auto strategy = make_strategy(session, "auto", pretend::gpus(1));
    Trainer trainer(
        *strategy, zoo::resnet18({16, 16, 3}, 4, {.width = 4}),
        {.compute = {.precision = model::Precision::bfloat16, .fused_statistics = when}});
    const std::uint64_t before = pretend::graph_plans();
    trainer.fit(data::Dataset::synthetic({16, 16, 3}, 4, 8).batch(8), {.epochs = 1});
    return pretend::graph_plans() - before;
  };
  EXPECT_EQ(plans(model::FusedStatistics::never), 0U);
  EXPECT_GT(plans(model::FusedStatistics::where_faster), 0U);
  ::unsetenv("LOCKSTEP_CACHE_DIR");
  std::filesystem::remove_all(folder);
}

// The graph API of the simulated cuDNN supports only convolutions with sums.
TEST(GpuTraining, ConvolvesWithTheSelectedInterface) {
  job::Session session(0, nullptr);
  const auto strategy = make_strategy(session, "auto", pretend::gpus(1));
  EXPECT_THAT(device_error_of([&] {
                Trainer trainer(*strategy, zoo::cnn({12, 12, 1}, 4),
                                {.compute = {.convolutions = model::Convolutions::graph}});
                trainer.fit(data::Dataset::synthetic({12, 12, 1}, 4, 8).batch(8), {.epochs = 1});
              }),
              HasSubstr("a graph other than a convolution and its sums"));
}

TEST(ChooseDevices, SelectsAllGpusForOneProcess) {
  const job::Session session(0, nullptr);
  const pretend::Machine machine({.gpus = 3});
  EXPECT_EQ(job::choose_devices(session, "auto"), pretend::gpus(3));
  EXPECT_EQ(job::choose_devices(session, "gpu:all"), pretend::gpus(3));
  EXPECT_EQ(job::choose_devices(session, "gpu:2,gpu:2"),
            (std::vector<device::Device>(2, pretend::gpus(1, 2).front())));
}

TEST(ChooseDevices, ReportsGpuProblems) {
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

TEST(GpuStrategy, ReportsRequiredAndFreeMemory) {
  job::Session session(0, nullptr);
  const pretend::Machine machine({.gpus = 1, .bytes_per_gpu = 1'000'000});
  const auto strategy = make_strategy(session, "auto", pretend::gpus(1));
  EXPECT_EQ(
      device_error_of([&] { strategy->run([&](int) { strategy->group(0).allocate(2'000'000); }); }),
      "[memory] expected 2000000 bytes on gpu:0; 1000000 are free");
}

TEST(GpuMemory, RejectsALargeBatchAndSuggestsASmallerOne) {
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
}  // namespace lockstep::inline v0::train
