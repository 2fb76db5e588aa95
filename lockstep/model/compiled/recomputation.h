// Activation recomputation: which steps of a plan run again in backward instead of keeping their
// results.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace lockstep::inline v0::model {

/// The properties of a plan's step that determine recomputation. Steps are in forward order.
struct StepArrays {
  /// Indices of the steps whose outputs it reads, without the inputs of the network, which are
  /// kept.
  std::vector<int> inputs = {};
  bool is_alias = false;  ///< its output aliases its first input: it computes nothing
  /// Its output is an output of the network, which is needed until the end of forward.
  bool is_output = false;
  std::size_t output_bytes = 0;
  std::size_t saved_bytes = 0;  ///< kept for backward; written again if it runs again
  bool runs_backward = false;
  bool inputs_in_backward = false;  ///< backward reads its inputs
  bool output_in_backward = false;  ///< backward reads its output
  /// A segment may end with this step: later steps need nothing from it but its output.
  bool may_end_segment = true;
};

/// A division of the steps into consecutive segments. All but the last one run again.
struct Recomputation {
  std::vector<int> segments;   ///< index of the segment of each step
  std::vector<bool> kept;      ///< the step's output is kept for a later segment
  std::vector<bool> is_rerun;  ///< the step runs again before its segment's backward

  /// Whether the step is in a segment that runs again.
  bool is_recomputed(std::size_t step) const { return segments[step] < segments.back(); }
};

/// The division that minimizes the memory of the kept outputs plus that of the largest segment
/// (Chen et al., "Training deep nets with sublinear memory cost", arXiv 1604.06174): one or several
/// blocks per segment in transformers. Outputs that a later segment reads are kept; in backward,
/// the steps of a segment whose outputs are needed and not kept run again. Deterministic.
Recomputation plan_recomputation(std::span<const StepArrays> steps);

/// One segment, in which no step runs again.
Recomputation no_recomputation(std::size_t steps);

}  // namespace lockstep::inline v0::model
