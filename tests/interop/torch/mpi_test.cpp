// The wrappers over the network, where a separate thread reduces buckets during the backward pass;
// run under mpirun.
#include <gtest/gtest.h>

#include "tests/interop/torch/module_loop.h"
#include "tests/support/mpi_session.h"

namespace interop_test {
namespace {

TEST(OverAWire, TrainsLikeOneProcess) {
  job::Workers workers(job::mpi_session(), {.route = allreduce::Route::ring});
  const interop::ReducerOptions small_buckets{.first_bucket_bytes = 1, .bucket_bytes = 1};
  const Data data;
  DistributedDataParallel module(workers, Net(1.0 + workers.rank()), {.gradients = small_buckets});
  auto plain = sgd(*module);
  Net net;
  auto inner = sgd(*net);
  DistributedOptimizer optimizer(workers, inner, net->named_parameters(), small_buckets);
  for (int step = 0; step < kSteps; ++step) {
    const auto part = part_of(step, workers.size(), workers.rank());
    plain.zero_grad();
    loss_of(module, data, part).backward();
    plain.step();
    optimizer.zero_grad();
    optimizer.set_samples(part.size());
    loss_of(*net, data, part).backward();
    optimizer.step();
  }
  const at::Tensor alone = train_alone();
  EXPECT_LT(difference(alone, flat(*module)), 1e-6);
  EXPECT_LT(difference(alone, flat(*net)), 1e-6);
}

}  // namespace
}  // namespace interop_test
