// Layout of the flat gradient of an existing training loop, and options of its reduction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/allreduce/member/reduction.h"

namespace lockstep::inline v0::allreduce {
struct LayoutEntry;
}

namespace lockstep::inline v0::interop {

/// Name and shape of a parameter, the same on all ranks.
struct ParameterLayout {
  std::string name;                      ///< unique among the parameters
  std::vector<std::int64_t> shape = {};  ///< row-major; empty: one element
  bool is_float64 = false;               ///< false: float32
  std::size_t elements() const;          ///< the product of the shape
};

/// average: every sample of the step has equal weight, in any rank and backward pass. sum:
/// gradients are added over ranks and passes unchanged.
enum class Reduction { average, sum };

/// Options of a GradientReducer, the same on all ranks.
struct ReducerOptions {
  Reduction reduction = Reduction::average;  ///< how gradients are combined
  /// Backward passes per step (gradient accumulation); gradients are reduced once per step.
  int backward_passes_per_step = 1;
  /// With Reduction::average, whether the passes of a step are averaged too. false: they are
  /// summed, as in libraries that accumulate gradients: the average over all samples times the
  /// number of passes. If ranks had different numbers of passes (flush()), their mean is used.
  bool average_passes = true;
  /// Type of float32 gradients in communication. 16-bit types halve the bytes and sum rounded
  /// values. float64 gradients are always summed as float64.
  allreduce::WireType compression = allreduce::WireType::float32;
  std::size_t first_bucket_bytes = std::size_t{1}
                                   << 20;  ///< small, so that communication starts early
  std::size_t bucket_bytes = std::size_t{25}
                             << 20;  ///< minimum size of the gradients that one call reduces
  /// Names of parameters to reduce in one call. A parameter in no group forms a separate group.
  std::vector<std::vector<std::string>> groups = {};
  /// Instead of `groups`: this many equal groups of consecutive parameters; 0: none.
  int group_count = 0;
  /// With Reduction::average, gradients are divided by this factor before the sum and by world size
  /// / factor after it. 0 is the world size: divide only before the sum, so that nothing overflows.
  double predivide_factor = 0;
  /// Largest norm of the reduced gradient over all parameters; 0: no clipping.
  double clip_norm = 0;
  /// Whether DistributedOptimizer skips a step whose reduced gradient is not finite, on all ranks.
  /// Costs two passes over the gradient, one of which clip_norm needs too.
  bool skip_non_finite = false;
};

/// Throws Error (input) that names the option that is out of range.
void check_options(const ReducerOptions& options);

/// A human-readable description, which ranks compare to check that they have the same options.
std::string to_string(const ReducerOptions& options);

// Position of each parameter's gradient in the flat gradient.

/// The backward pass completes parameters from the last to the first, so they are stored in that
/// order, each starting on a cache line. An entry is completed as a whole: one parameter, or a
/// group of them. float64 parameters are in a separate array and have no entry.
struct GradientLayout {
  /// Entry index of float64 parameters.
  static constexpr std::size_t kNoEntry = static_cast<std::size_t>(-1);

  std::vector<std::size_t> offsets = {};  ///< by parameter: offset in its array, in elements
  std::vector<std::size_t> entries = {};  ///< by parameter: index of its entry
  std::vector<std::size_t> begins = {};   ///< by entry: offset in elements, ascending
  std::vector<std::size_t> counts = {};   ///< by entry: number of parameters
  std::size_t size = 0;       ///< elements of the float32 array, a whole number of cache lines
  std::size_t wide_size = 0;  ///< elements of the float64 array, a whole number of cache lines
};

/// Throws Error (input) if names are not unique, or if groups contain unknown or repeated names.
GradientLayout make_gradient_layout(std::span<const ParameterLayout> parameters,
                                    const ReducerOptions& options);

/// Names with shapes and types, in order, which ranks compare before the first reduction.
std::vector<allreduce::LayoutEntry> describe(std::span<const ParameterLayout> parameters);

}  // namespace lockstep::inline v0::interop
