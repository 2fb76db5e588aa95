// Activation recomputation: which steps of a plan run again in backward instead of keeping what
// they have computed.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace lockstep::model {

/// What recomputation depends on of one step of a plan. Steps are in the order of forward.
struct StepArrays {
  /// Indices of the steps whose outputs it reads. Inputs of the network are not among them: they
  /// are kept.
  std::vector<int> inputs = {};
  bool is_alias = false;  ///< its output is the memory of its first input: it computes nothing
  /// Its output is one of the network, whose memory is needed until the end of forward in any case.
  bool is_output = false;
  std::size_t output_bytes = 0;
  std::size_t saved_bytes = 0;  ///< what it keeps for backward, and writes again if it runs again
  bool runs_backward = false;
  bool inputs_in_backward = false;  ///< backward reads its inputs
  bool output_in_backward = false;  ///< backward reads its output
  /// A segment may end with this step: it leaves nothing but its output to the next one.
  bool may_end_segment = true;
};

/// A division of the steps into consecutive segments. All but the last one run again.
struct Recomputation {
  std::vector<int> segments;     ///< of each step, from 0 on
  std::vector<bool> kept;        ///< the step's output is kept for a later segment
  std::vector<bool> runs_again;  ///< the step runs again before its segment's backward

  /// Whether the step is in a segment that runs again.
  bool is_recomputed(std::size_t step) const { return segments[step] < segments.back(); }
};

/// The division in which the kept outputs and the largest segment need the least memory together
/// (Chen et al., "Training deep nets with sublinear memory cost", arXiv 1604.06174): in
/// transformers the blocks, or several where they are small. Kept is what a later segment reads. In
/// backward the steps of a segment run again whose outputs are needed and not kept. Deterministic.
Recomputation plan_recomputation(std::span<const StepArrays> steps);

/// One segment, in which no step runs again.
Recomputation no_recomputation(std::size_t steps);

}  // namespace lockstep::model
