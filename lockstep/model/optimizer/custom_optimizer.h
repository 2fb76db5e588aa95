// Base class of user-defined optimizers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::inline v0::model {

/// Elements of one parameter, in host memory. All arrays have the same length.
struct UpdateElements {
  std::span<float> values;                   ///< the parameter, updated in place
  std::span<const float> gradients;          ///< means over the global batch, clipped
  std::vector<std::span<float>> slots = {};  ///< in the order of CustomOptimizer::slots(); updated
};

/// The numbers of one update of a CustomOptimizer.
struct UpdateNumbers {
  float learning_rate = 0;  ///< rate of the schedule, times the factor of the parameter's group
  std::int64_t step = 1;    ///< number of this update, from 1; skipped steps do not count
  /// The decay of the parameter's group, or CustomOptimizer::weight_decay(); 0 for biases and
  /// normalization.
  float weight_decay = 0;
};

/// A user-defined optimizer. It runs on the CPU only, in one thread per replica. All replicas share
/// it, and each updates all parameters: its results must depend on its arguments only.
class CustomOptimizer {
 public:
  virtual ~CustomOptimizer() = default;
  /// Name in logs, errors and checkpoints. Like slot names, it consists of letters, digits, "_",
  /// "-" and ".".
  virtual std::string name() const { return "custom_optimizer"; }
  /// Names of the arrays kept in addition to the parameters: one float per element, initially 0.
  /// Checkpoints store them; one with other slots is rejected.
  virtual std::vector<std::string> slots() const { return {}; }
  /// Names and values, for logs and checkpoints. Resuming with other values logs a warning.
  virtual std::vector<std::pair<std::string, float>> hyperparameters() const { return {}; }
  /// Default weight decay, for parameters whose group sets none; 0 or more.
  virtual float weight_decay() const { return 0; }
  /// Updates values and slots. The elements may be any part of a parameter, so the result for
  /// element i must depend on element i of the arrays alone.
  virtual void update(const UpdateElements& elements, const UpdateNumbers& numbers) const = 0;
};
/// Shared by all replicas.
using CustomOptimizerPointer = std::shared_ptr<const CustomOptimizer>;

}  // namespace lockstep::inline v0::model
