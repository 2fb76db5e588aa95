// The learning rate as a function of the step.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::model {

/// Linear warm-up over `warmup_steps`, then the schedule over the remaining steps. During warm-up,
/// update s has the rate peak * (s + 1) / warmup_steps: the first update has a nonzero rate, and
/// the last one has the peak rate.
struct Schedule {
  /// How the rate decays from its peak.
  enum class Kind {
    constant,
    cosine,  ///< half a cosine from the peak to `final_fraction` of it at `total_steps`
             ///< (Loshchilov, Hutter, ICLR 2017)
    step,    ///< times `step_factor` at every multiple of `step_every`, counted from the start of
             ///< training
    linear,  ///< a straight line from the peak to `final_fraction` of it at `total_steps`
  };
  Kind kind = Kind::constant;     ///< the decay
  float peak = 1e-3f;             ///< the maximum rate
  std::int64_t warmup_steps = 0;  ///< number of steps in which the rate grows to its peak
  std::int64_t total_steps = 0;   ///< length of the training; required by cosine and linear
  float final_fraction = 0;       ///< final rate as a fraction of the peak
  std::int64_t step_every = 0;    ///< steps between decays; required by step
  float step_factor = 0.1f;       ///< factor on the rate at each decay of kind `step`

  /// The rate of update `step`, counted from 0. Throws the errors of check().
  float rate(std::int64_t step) const;
  /// Throws Error (input) for a negative value, or if the kind lacks a required value.
  void check() const;
};

/// Parses "constant", "cosine", "step" or "linear". Throws Error (input) that lists the names.
Schedule::Kind parse_schedule(std::string_view name);
std::string to_string(Schedule::Kind kind);  ///< the name used by `--lr-schedule`

}  // namespace lockstep::model
