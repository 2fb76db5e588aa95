// How gradients of a training loop of one's own are put together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/allreduce/layout.h"
#include "lockstep/allreduce/reduction.h"

namespace lockstep::interop {

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

// Where each parameter's gradient lies in the flat one.

/// Backward completes parameters from the last to the first, so they lie in that order, each on a cache line of its
/// own. An entry is what is complete together: a parameter, or a group of them.
struct GradientLayout {
  std::vector<std::size_t> offsets = {};  ///< of each parameter, in elements
  std::vector<std::size_t> entries = {};  ///< of each parameter: the number of its entry
  std::vector<std::size_t> begins = {};   ///< of each entry, in elements, ascending
  std::vector<std::size_t> counts = {};   ///< of each entry: parameters in it
  std::size_t size = 0;                   ///< in elements, a whole number of cache lines
};

/// Throws Error (input) for two parameters of one name, and for groups that name what is no parameter or one twice.
GradientLayout make_gradient_layout(std::span<const ParameterLayout> parameters, const ReducerOptions& options);

/// What ranks compare before the first reduction: names with shapes, in order.
std::vector<allreduce::LayoutEntry> describe(std::span<const ParameterLayout> parameters);

}  // namespace lockstep::interop
