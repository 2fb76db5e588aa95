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
    polynomial,   ///< linear, with the remaining part of the way to the power `power`
    exponential,  ///< times `step_factor` over every `step_every` steps after the warm-up, smoothly
    inverse_sqrt,  ///< peak * sqrt(warmup_steps / (step + 1)) (Vaswani et al., NeurIPS 2017)
    one_cycle,     ///< half a cosine from peak / 25 to the peak, reached by step `warmup_steps` (0:
                ///< 30 % of `total_steps`), then one to peak / 250000 at the last step (Smith and
                ///< Topin, 2018; PyTorch's OneCycleLR without its cycle of the momentum)
  };
  Kind kind = Kind::constant;     ///< the decay
  float peak = 1e-3f;             ///< the maximum rate
  std::int64_t warmup_steps = 0;  ///< number of steps in which the rate grows to its peak
  std::int64_t total_steps = 0;   ///< length of the training; required if depends_on_end()
  float final_fraction = 0;       ///< final rate as a fraction of the peak
  std::int64_t step_every = 0;    ///< steps between decays; required by step and exponential
  float step_factor = 0.1f;       ///< factor on the rate of each decay of step and exponential
  float power = 1;                ///< exponent of polynomial

  /// The rate of update `step`, counted from 0. Throws the errors of check().
  float rate(std::int64_t step) const;
  /// Whether the rate depends on `total_steps`.
  bool depends_on_end() const;
  /// Throws Error (input) for a negative value, or if the kind lacks a required value.
  void check() const;
};

/// Parses a name such as "constant" or "one-cycle". Throws Error (input) that lists the names.
Schedule::Kind parse_schedule(std::string_view name);
std::string to_string(Schedule::Kind kind);  ///< the name used by `--lr-schedule`

}  // namespace lockstep::model
