// The learning rate as a function of the step.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::model {

/// Linear warm-up over `warmup_steps`: update s has the rate peak * (s + 1) / warmup_steps, so the first one learns
/// something and the last one has the peak. Then the schedule over the remaining steps.
struct Schedule {
  /// How the rate goes down from its peak.
  enum class Kind {
    constant,
    cosine,  ///< half a cosine from the peak to `final_fraction` of it at `total_steps` (Loshchilov and Hutter, ICLR
             ///< 2017)
    step,    ///< times `step_factor` at every multiple of `step_every`, counted from the start of training
    linear,  ///< a straight line from the peak to `final_fraction` of it at `total_steps`
  };
  Kind kind = Kind::constant;     ///< which of them
  float peak = 1e-3f;             ///< the largest rate
  std::int64_t warmup_steps = 0;  ///< over which the rate grows to its peak
  std::int64_t total_steps = 0;   ///< the whole training; needed by cosine and linear
  float final_fraction = 0;       ///< of the peak, that is left at the end
  std::int64_t step_every = 0;    ///< needed by step
  float step_factor = 0.1f;       ///< what each step of the kind `step` multiplies the rate by

  /// The rate of update `step`, counted from 0. Throws as check() does.
  float rate(std::int64_t step) const;
  /// Throws Error (input) for a negative rate or number, or where a kind lacks what it needs.
  void check() const;
};

/// Reads "constant", "cosine", "step", "linear". Throws Error (input) with the names.
Schedule::Kind parse_schedule(std::string_view name);
std::string to_string(Schedule::Kind kind);  ///< the name that `--lr-schedule` knows

}  // namespace lockstep::model
