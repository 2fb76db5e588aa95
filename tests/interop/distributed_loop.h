// A training loop over the samples of tests/interop/own_network.h, in one process and distributed.
// Model and Inner are a user's network and optimizer, with the interface of those in that file.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "lockstep/interop/distributed_optimizer.h"
#include "tests/interop/own_network.h"

namespace lockstep::inline v0::interop::own {

constexpr std::size_t kGlobalBatch = 28;
constexpr std::size_t kSamples = 100;  // three whole batches and one of 16
constexpr int kSteps = 50;

/// Samples [begin, end).
struct Part {
  std::size_t begin;
  std::size_t end;

  /// The `index`-th of `parts` parts, whose sizes may differ by one.
  Part of(int index, int parts) const {
    const auto at = [&](int i) {
      return begin + (end - begin) * static_cast<std::size_t>(i) / static_cast<std::size_t>(parts);
    };
    return {at(index), at(index + 1)};
  }
};

/// The samples of step `step`.
inline Part batch_of(int step) {
  const std::size_t batches = (kSamples + kGlobalBatch - 1) / kGlobalBatch;
  const std::size_t begin = static_cast<std::size_t>(step) % batches * kGlobalBatch;
  return {begin, std::min(begin + kGlobalBatch, kSamples)};
}

/// The parameters after kSteps steps in one process without Lockstep.
template <typename Model = Network, typename Inner = Momentum>
std::vector<float> train_alone() {
  const Samples samples = make_samples(kSamples);
  Model network;
  Inner optimizer(network);
  for (int step = 0; step < kSteps; ++step) {
    const Part batch = batch_of(step);
    network.zero_grad();
    network.backward(samples, batch.begin, batch.end);
    optimizer.step();
  }
  return network.all_values();
}

/// The parameters after kSteps steps on this rank, which trains its part of each global batch in
/// `options.backward_passes_per_step` passes.
template <typename Model = Network, typename Inner = Momentum>
std::vector<float> train_as_rank(job::Workers& workers, const DistributedOptions& options,
                                 unsigned seed = 1, bool announces = false) {
  const Samples samples = make_samples(kSamples);
  Model network(seed);
  Inner inner(network);
  DistributedOptimizer optimizer(workers, inner, options);
  optimizer.broadcast_parameters();
  const int passes = options.backward_passes_per_step;
  const std::size_t parameters = inner.parameters().size();
  for (int step = 0; step < kSteps; ++step) {
    const Part batch = batch_of(step);
    optimizer.zero_grad();
    for (int pass = 0; pass < passes; ++pass) {
      const Part part = batch.of(workers.rank() * passes + pass, workers.size() * passes);
      const auto size = static_cast<double>(part.end - part.begin);
      if (announces) optimizer.begin_backward(size);
      network.backward(samples, part.begin, part.end);
      if (announces)
        for (std::size_t i = parameters; i-- > 0;) optimizer.gradient_ready(i);
      optimizer.backward_done(size);
    }
    optimizer.step();
  }
  return network.all_values();
}

/// The largest difference divided by the largest magnitude.
inline double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0;
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference =
        std::max(difference, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
    largest = std::max(largest, std::abs(static_cast<double>(a[i])));
  }
  return difference / largest;
}

}  // namespace lockstep::inline v0::interop::own
