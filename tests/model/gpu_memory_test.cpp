// When a model allocates GPU memory, and its state after a failed allocation, on simulated GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/device/gpu.h"
#include "lockstep/model/zoo/zoo.h"
#include "tests/model/support/sides.h"
#include "tests/support/device_error.h"
#include "tests/support/pretend_cuda/machine.h"

namespace lockstep::inline v0::model {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<const Network> small_network() {
  return std::make_shared<const Network>(zoo::cnn({12, 12, 1}, 5));
}

// An evaluation of a batch like those of training, after some of them.
std::size_t taken_by_evaluation(bool prepare) {
  Side side(kGpu, small_network(), {});
  if (prepare) side.model().prepare(40, false);
  const Data few(side.model().network(), 10);
  const Data many(side.model().network(), 40);
  // Both staging buffers have their maximum size; plans for training are for few samples.
  for (int step = 0; step < 2; ++step)
    side.model().train_batch(few.batch_for(kLoss), few.context(), kLoss);
  for (int place = 0; place < 2; ++place) side.model().stage(many.batch_for(kLoss));
  const std::size_t before = device::gpu_free_bytes(0);
  side.model().evaluate_batch(many.batch_for(kLoss), kLoss);
  return before - device::gpu_free_bytes(0);
}

TEST(GpuMemory, IsAllocatedWhenEvaluationsArePrepared) {
  constexpr std::size_t kTargetBytes = 4096;  // labels, and results of each sample
  EXPECT_LE(taken_by_evaluation(true), kTargetBytes);
  EXPECT_GT(taken_by_evaluation(false), 10 * kTargetBytes);
}

TEST(GpuMemory, IsNotAllocatedByALaterStepOfAKnownSize) {
  Side side(kGpu, small_network(), {});
  const Data few(side.model().network(), 10);
  const Data many(side.model().network(), 40);
  const auto free_after_steps = [&] {
    for (const Data* data : {&few, &many, &many, &few})
      side.model().train_batch(data->batch_for(kLoss), data->context(), kLoss);
    return device::gpu_free_bytes(0);
  };
  const std::size_t before = free_after_steps();
  EXPECT_EQ(free_after_steps(), before);
}

TEST(GpuMemory, IsRejectedIfThePreparedPlanDoesNotFit) {
  const pretend::Machine machine({.gpus = 1, .bytes_per_gpu = std::size_t{4} << 20});
  Side side(kGpu, small_network(), {});
  EXPECT_THAT(device_error_of([&] { side.model().prepare(4096, false); }),
              HasSubstr("[memory] expected "));
}

// Free memory may be fragmented, so that the allocation itself fails.
TEST(GpuMemory, IsNotUsedAfterAFailedAllocation) {
  const auto network = small_network();
  const Data few(*network, 2);
  const Data many(*network, 64);
  Side expected(kGpu, network, {});
  expected.model().train_batch(few.batch_for(kLoss), few.context(), kLoss);
  Side side(kGpu, network, {});
  side.model().train_batch(few.batch_for(kLoss), few.context(), kLoss);
  for (const bool training : {true, false}) {
    const pretend::Machine pieces({.gpus = 1, .largest_piece = std::size_t{64} << 10});
    EXPECT_THAT(device_error_of([&] { side.model().prepare(64, training); }),
                HasSubstr(" bytes on gpu:0; "));
  }
  side.model().train_batch(few.batch_for(kLoss), few.context(), kLoss);
  EXPECT_EQ(side.gradients(), expected.gradients());
  side.model().train_batch(many.batch_for(kLoss), many.context(), kLoss);
}

}  // namespace
}  // namespace lockstep::inline v0::model
