#include "lockstep/model/compiled/recomputation.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace lockstep::inline v0::model {
namespace {

// A step's output with its aliases.
struct StepArray {
  int last_read = -1;  // index of a step; -1: none reads it
  bool in_backward = false;
  std::size_t bytes = 0;
};

// By step, the step that writes the memory of its output.
std::vector<int> writers_of(std::span<const StepArrays> steps) {
  std::vector<int> writers;
  for (const StepArrays& step : steps) {
    const bool reads_step = step.is_alias && !step.inputs.empty();
    writers.push_back(reads_step ? writers[static_cast<std::size_t>(step.inputs.front())]
                                 : static_cast<int>(writers.size()));
  }
  return writers;
}

// The arrays, indexed by the step that writes them.
std::vector<StepArray> step_arrays_of(std::span<const StepArrays> steps,
                                      std::span<const int> writers) {
  std::vector<StepArray> arrays(steps.size());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const StepArrays& step = steps[i];
    const bool computes_back = step.runs_backward && !step.is_alias;
    StepArray& output = arrays[static_cast<std::size_t>(writers[i])];
    output.in_backward |= computes_back && step.output_in_backward;
    if (static_cast<int>(i) == writers[i] && !step.is_alias) output.bytes = step.output_bytes;
    if (step.is_output) output.bytes = 0;
    for (const int input : step.inputs) {
      StepArray& read = arrays[static_cast<std::size_t>(writers[static_cast<std::size_t>(input)])];
      read.last_read = static_cast<int>(i);
      read.in_backward |= computes_back && step.inputs_in_backward;
    }
  }
  return arrays;
}

// Memory of a segment, in bytes.
struct SegmentBytes {
  std::size_t kept = 0;    // outputs that later segments read
  std::size_t inside = 0;  // read by backward, not kept
};

// Calls visit(end, bytes) for the segments [first, end), in ascending order of `end`, until it
// returns false.
template <typename Visit>
void for_segments(std::span<const StepArrays> steps, std::span<const StepArray> arrays,
                  std::span<const std::vector<int>> last_reads, std::size_t first,
                  const Visit& visit) {
  SegmentBytes bytes;
  for (std::size_t i = first; i < steps.size(); ++i) {
    const StepArray& output = arrays[i];
    bytes.inside += steps[i].saved_bytes;
    if (output.last_read > static_cast<int>(i))
      bytes.kept += output.bytes;
    else if (output.in_backward)
      bytes.inside += output.bytes;
    for (const int writer : last_reads[i]) {
      if (writer < static_cast<int>(first)) continue;
      const StepArray& read = arrays[static_cast<std::size_t>(writer)];
      bytes.kept -= read.bytes;
      if (read.in_backward) bytes.inside += read.bytes;
    }
    if (!visit(i + 1, bytes)) return;
  }
}

// The best division of the steps before one of them.
struct Division {
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
  std::size_t kept = kNone;  // bytes; kNone: no division exists
  std::size_t begin = 0;     // first step of the last segment
  std::size_t inside = 0;    // bytes of the last segment
};

// The ends of the segments, ascending. For several limits, dynamic programming finds the best
// division into segments of at most that many bytes.
std::vector<std::size_t> best_ends(std::span<const StepArrays> steps,
                                   std::span<const StepArray> arrays) {
  constexpr std::size_t kMaxLimits = 64;
  const std::size_t count = steps.size();
  std::vector<std::vector<int>> last_reads(count);  // arrays whose last reader is the step
  for (std::size_t i = 0; i < count; ++i)
    if (arrays[i].last_read > static_cast<int>(i))
      last_reads[static_cast<std::size_t>(arrays[i].last_read)].push_back(static_cast<int>(i));

  std::vector<std::size_t> best = {count};
  std::size_t whole = 0;
  for_segments(steps, arrays, last_reads, 0, [&](std::size_t /*end*/, const SegmentBytes& bytes) {
    whole = bytes.inside;
    return true;
  });
  std::size_t least = whole;
  for (std::size_t parts = 2; parts <= std::min(count, kMaxLimits); ++parts) {
    const std::size_t limit = whole / parts;
    std::vector<Division> divisions(count + 1);  // best division of the first k steps
    divisions[0].kept = 0;
    for (std::size_t first = 0; first < count; ++first) {
      const std::size_t before = divisions[first].kept;
      if (before == Division::kNone) continue;
      for_segments(steps, arrays, last_reads, first,
                   [&](std::size_t end, const SegmentBytes& bytes) {
                     if (bytes.inside > limit) return false;
                     const bool may_end = end == count || steps[end - 1].may_end_segment;
                     if (may_end && before + bytes.kept < divisions[end].kept)
                       divisions[end] = {before + bytes.kept, first, bytes.inside};
                     return true;
                   });
    }
    if (divisions[count].kept == Division::kNone) break;  // nor for smaller limits
    std::vector<std::size_t> ends;
    std::size_t largest = 0;
    for (std::size_t end = count; end > 0; end = divisions[end].begin) {
      ends.push_back(end);
      largest = std::max(largest, divisions[end].inside);
    }
    if (divisions[count].kept + largest >= least) continue;
    least = divisions[count].kept + largest;
    best.assign(ends.rbegin(), ends.rend());
  }
  return best;
}

// Sets `is_rerun` for the steps of a segment, from the last to the first, whose output or saved
// bytes are needed but not in memory.
void mark_steps(std::span<const StepArrays> steps, std::span<const int> writers, std::size_t first,
                std::size_t end, Recomputation& result) {
  std::vector<bool> is_read(steps.size());
  const auto read = [&](int step) {
    is_read[static_cast<std::size_t>(writers[static_cast<std::size_t>(step)])] = true;
  };
  for (std::size_t i = first; i < end; ++i) {
    const StepArrays& step = steps[i];
    if (!step.runs_backward || step.is_alias) continue;
    if (step.inputs_in_backward) std::ranges::for_each(step.inputs, read);
    if (step.output_in_backward) read(static_cast<int>(i));
  }
  for (std::size_t i = end; i-- > first;) {
    const StepArrays& step = steps[i];
    const bool is_saved = step.runs_backward && step.saved_bytes > 0;
    result.is_rerun[i] = !step.is_alias && (is_saved || (is_read[i] && !result.kept[i]));
    if (result.is_rerun[i]) std::ranges::for_each(step.inputs, read);
  }
}

}  // namespace

Recomputation no_recomputation(std::size_t steps) {
  return {.segments = std::vector<int>(steps),
          .kept = std::vector<bool>(steps),
          .is_rerun = std::vector<bool>(steps)};
}

Recomputation plan_recomputation(std::span<const StepArrays> steps) {
  Recomputation result = no_recomputation(steps.size());
  if (steps.empty()) return result;
  const std::vector<int> writers = writers_of(steps);
  const std::vector<std::size_t> ends = best_ends(steps, step_arrays_of(steps, writers));
  for (std::size_t segment = 0, i = 0; segment < ends.size(); ++segment)
    for (; i < ends[segment]; ++i) result.segments[i] = static_cast<int>(segment);

  const auto segment_of = [&](int step) { return result.segments[static_cast<std::size_t>(step)]; };
  std::vector<bool> kept(steps.size());  // indexed by the step that writes
  for (std::size_t i = 0; i < steps.size(); ++i) {
    for (const int input : steps[i].inputs) {
      const int writer = writers[static_cast<std::size_t>(input)];
      if (segment_of(writer) < result.segments[i]) kept[static_cast<std::size_t>(writer)] = true;
    }
    if (steps[i].is_output && result.is_recomputed(i))
      kept[static_cast<std::size_t>(writers[i])] = true;
  }
  for (std::size_t i = 0; i < steps.size(); ++i)
    result.kept[i] = kept[static_cast<std::size_t>(writers[i])];
  for (std::size_t segment = 0, first = 0; segment + 1 < ends.size(); first = ends[segment++])
    mark_steps(steps, writers, first, ends[segment], result);
  return result;
}

}  // namespace lockstep::inline v0::model
