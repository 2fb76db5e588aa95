// Where each parameter's gradient lies in the flat one.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "allreduce/layout.h"
#include "strategy/wrapper/reducer_options.h"

namespace lockstep::strategy {

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

}  // namespace lockstep::strategy
