// How gradients of a training loop of one's own are put together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "allreduce/wire_type.h"

namespace lockstep::strategy {

/// A parameter as all ranks must have it.
struct ParameterLayout {
  std::string name;                      ///< its own among the parameters, the same on all ranks
  std::vector<std::int64_t> shape = {};  ///< row-major; one element where it is empty
  std::size_t elements() const;          ///< the product of the shape
};

/// average: every sample of the step counts the same, whichever rank and backward pass it was in. sum: gradients are
/// added over ranks and passes as they are.
enum class Reduction { average, sum };

/// Options of a GradientReducer. All ranks give the same.
struct ReducerOptions {
  Reduction reduction = Reduction::average;  ///< how gradients become one
  /// Backward passes that make one step (gradient accumulation), reduced once.
  int backward_passes_per_step = 1;
  /// With Reduction::average, whether passes of a step are averaged as well. false: they add up, as a library that
  /// accumulates gradients would have it: the average over all samples times the number of passes, of which ranks may
  /// have had different numbers (flush()): then their mean.
  bool average_passes = true;
  /// What gradients travel as. 16 bits halve the bytes; the sum is of values rounded to them.
  allreduce::WireType compression = allreduce::WireType::float32;
  std::size_t first_bucket_bytes = std::size_t{1} << 20;  ///< small, so that communication starts early
  std::size_t bucket_bytes = std::size_t{25} << 20;       ///< gradients that are reduced in one call, at least
  /// Names of parameters that are to be reduced in one call. A parameter that no group names is its own.
  std::vector<std::vector<std::string>> groups = {};
  int group_count = 0;  ///< instead of `groups`: as many groups of equally many neighbours; 0 for none
  /// Of an average, the part of the division that is done before the sum: gradients are divided by this factor before
  /// it and by world size / factor after it. 0 stands for the world size: all of it before, so that nothing overflows.
  double predivide_factor = 0;
  /// Largest norm of the reduced gradient, over all parameters together; 0 for no clipping.
  double clip_norm = 0;
};

/// Throws Error (input) that names the option which is out of its range.
void check_options(const ReducerOptions& options);

/// "average, 1 backward pass a step, float32, …": for people, and to see whether ranks have the same.
std::string to_string(const ReducerOptions& options);

}  // namespace lockstep::strategy
