// Optimizers over flat arrays.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/model/optimizer/optimizer_options.h"
#include "lockstep/model/tensor/parameters.h"

namespace lockstep::inline v0::model {

/// A range of the flat arrays, padding included, that is updated with the same constants.
struct UpdateRange {
  std::size_t begin = 0;  ///< first element
  std::size_t end = 0;    ///< one past the last element
  UpdateGroup group;      ///< group of its parameters
};

/// The ranges of an update, in flat order: one per parameter for layer-wise optimizers; otherwise
/// adjacent parameters of the same group are merged. For a CustomOptimizer one per parameter,
/// without padding.
std::vector<UpdateRange> update_ranges(const OptimizerOptions& options,
                                       const ParameterTable& table);

/// The optimizer of one replica. Its slots are flat arrays with the layout of the parameters.
class Optimizer {
 public:
  /// Copies the flat size and the ranges from `table`. Throws Error (input) for a constant
  /// out of range.
  Optimizer(OptimizerOptions options, const ParameterTable& table);

  /// Updates `parameters` from `gradients` * `gradient_scale`, both flat arrays of the table's
  /// size. `step` counts updates from 1 and is used for bias correction. Decay applies only to
  /// entries that have it enabled. Makes one pass over memory, and a second one over each layer for
  /// layer-wise optimizers. Norms are summed in double in a fixed order, so results are
  /// bit-reproducible.
  void apply(std::span<float> parameters, std::span<const float> gradients, float learning_rate,
             std::int64_t step, float gradient_scale = 1);

  /// Names of the slot arrays, which checkpoints store; see slot_names(options).
  std::vector<std::string> slot_names() const { return model::slot_names(options_); }
  /// The slot `name` as a flat array, padding included. Throws Error (checkpoint) for an unknown
  /// name.
  std::span<float> slot(std::string_view name);

  /// The options given to the constructor.
  const OptimizerOptions& options() const { return options_; }

 private:
  OptimizerOptions options_;
  std::size_t size_;  // elements of a flat array
  std::vector<UpdateRange> ranges_;
  std::vector<std::vector<float>> slots_;
};

/// Euclidean norm of a flat gradient, summed in double in a fixed order.
double global_norm(std::span<const float> gradients);

/// Whether all elements are finite. One pass over memory, without branches.
bool all_finite(std::span<const float> values);

/// The factor that scales a gradient of norm `norm` to at most `limit`. 1 if the norm is within the
/// limit, or if the limit is 0 (no clipping).
float clip_scale(double norm, double limit);

}  // namespace lockstep::inline v0::model
