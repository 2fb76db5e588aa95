// Optimizers over flat arrays: one formula for every parameter.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/model/optimizer_options.h"
#include "lockstep/model/parameters.h"

namespace lockstep::model {

/// A range of the flat arrays in which an update has one set of numbers, padding included.
struct UpdateRange {
  std::size_t begin = 0;  ///< first element
  std::size_t end = 0;    ///< behind the last one
  bool decay = false;     ///< whether weight decay applies to it
};

/// The ranges of an update, in flat order: one per parameter for optimizers that take norms of layers, else neighbours
/// with the same decay are one.
std::vector<UpdateRange> update_ranges(const OptimizerOptions& options, const ParameterTable& table);

/// One replica's optimizer: its slots are flat arrays with the layout of the parameters.
class Optimizer {
 public:
  /// `table` is copied in what matters: flat size and the ranges where decay applies. Throws Error (input) for a
  /// constant out of its range.
  Optimizer(OptimizerOptions options, const ParameterTable& table);

  /// Updates `parameters` from `gradients` * `gradient_scale`, both flat arrays of the table's size. `step` counts
  /// updates from 1 and enters bias correction. Decay applies only to entries that want it. One pass over memory, and
  /// one more over each layer for optimizers that need its norms, which are summed in double in a fixed order: the same
  /// input gives the same bits.
  void apply(std::span<float> parameters, std::span<const float> gradients, float learning_rate, std::int64_t step,
             float gradient_scale = 1);

  /// Slot arrays for checkpoints, see slot_names(options). Flat, padding included.
  std::vector<std::string> slot_names() const { return model::slot_names(options_); }
  /// The slot of that name, flat. Throws Error (checkpoint) for an unknown one.
  std::span<float> slot(std::string_view name);

  const OptimizerOptions& options() const { return options_; }  ///< as it was made

 private:
  OptimizerOptions options_;
  std::vector<UpdateRange> ranges_;
  std::vector<std::vector<float>> slots_;
};

/// Euclidean norm of a flat gradient, summed in double in a fixed order.
double global_norm(std::span<const float> gradients);

/// Whether no element is infinite or not a number. One pass over memory, without branches.
bool all_finite(std::span<const float> values);

/// The factor that brings a gradient of norm `norm` to at most `limit`; 1 where it is within, or where limit is 0 (no
/// clipping).
float clip_scale(double norm, double limit);

}  // namespace lockstep::model
