// A network with random numbers on one CPU replica, and its training on a batch.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/device/buffer.h"
#include "lockstep/model/compiled/check_gradients.h"
#include "lockstep/model/compiled/compiled_model.h"

namespace lockstep::inline v0::model {

/// A compiled network of one input with mean squared error. Parameters, buffers, targets, and
/// features or indices (below 5) are random numbers of `seed`. Scales are near 1, so that
/// tolerances can be absolute. Variances are positive.
class Trial {
 public:
  Trial(Network network, std::int64_t samples, std::uint64_t seed = 1,
        Precision precision = Precision::float32);

  CompiledModel& model() { return model_; }
  const Network& network() const { return model_.network(); }
  std::int64_t samples() const { return samples_; }
  std::vector<float>& features() { return features_; }
  std::vector<std::int32_t>& indices() { return indices_; }
  std::vector<float>& targets() { return targets_; }

  /// The array called `name` in the flat parameters, gradients or buffers; throws std::out_of_range
  /// where there is none.
  std::span<float> parameter(std::string_view name);
  std::span<float> gradient(std::string_view name);
  std::span<float> buffer(std::string_view name);

  /// One training pass; the global batch of the context defaults to this batch. Returns the sums;
  /// gradients are in the model.
  MetricSums train(StepContext context = {});
  MetricSums evaluate();
  std::vector<float> predict();

 private:
  BatchView batch() const;

  device::HostAllocator allocator_;
  std::int64_t samples_;
  CompiledModel model_;
  std::vector<float> features_;
  std::vector<std::int32_t> indices_;  // instead of features, for an int32 input
  std::vector<float> targets_;
};

/// Expects that check_gradients() finds no difference.
void expect_gradients_match_differences(const Network& network, const GradientCheck& check = {});

}  // namespace lockstep::inline v0::model
