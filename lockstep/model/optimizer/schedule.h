// The learning rate as a function of the step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/fields/fields.h"

namespace lockstep::inline v0::model {

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
    linear,  ///< linear from the peak to `final_fraction` of it at `total_steps`
    polynomial,   ///< linear, with the remaining fraction raised to the power `power`
    exponential,  ///< times `step_factor` over every `step_every` steps after the warm-up, smoothly
    inverse_sqrt,  ///< peak * sqrt(warmup_steps / (step + 1)) (Vaswani et al., NeurIPS 2017)
    one_cycle,     ///< half a cosine from peak / 25 to the peak, reached by step `warmup_steps` (0:
                ///< 30 % of `total_steps`), then one to peak / 250000 at the last step (Smith and
                ///< Topin, 2018; PyTorch's OneCycleLR without its cycle of the momentum)
  };
  Kind kind = Kind::constant;      ///< the decay
  std::optional<float> peak = {};  ///< the maximum rate; nullopt: 0.001
  std::int64_t warmup_steps = 0;   ///< number of steps in which the rate grows to its peak
  std::int64_t total_steps = 0;    ///< length of the training; required if depends_on_end()
  float final_fraction = 0;        ///< final rate as a fraction of the peak
  std::int64_t step_every = 0;     ///< steps between decays; required by step and exponential
  float step_factor = 0.1f;        ///< factor on the rate of each decay of step and exponential
  float power = 1;                 ///< exponent of polynomial

  float peak_rate() const { return peak.value_or(1e-3f); }  ///< the maximum rate
  /// The rate of update `step`, counted from 0. Throws the errors of check().
  float rate(std::int64_t step) const;
  /// Whether the rate depends on `total_steps`.
  bool depends_on_end() const;
  /// Throws Error (input) for a negative value, or if the kind lacks a required value.
  void check() const;
};

std::string to_string(Schedule::Kind kind);  ///< the name used by `--lr-schedule`

}  // namespace lockstep::inline v0::model

namespace lockstep::inline v0 {

template <>
inline constexpr auto kNamesOf<model::Schedule::Kind> =
    enum_names<model::Schedule::Kind>({{model::Schedule::Kind::constant, "constant"},
                                       {model::Schedule::Kind::cosine, "cosine"},
                                       {model::Schedule::Kind::step, "step"},
                                       {model::Schedule::Kind::linear, "linear"},
                                       {model::Schedule::Kind::polynomial, "polynomial"},
                                       {model::Schedule::Kind::exponential, "exponential"},
                                       {model::Schedule::Kind::inverse_sqrt, "inverse-sqrt"},
                                       {model::Schedule::Kind::one_cycle, "one-cycle"}});

/// The options of a schedule; its length is that of the training.
template <>
struct Fields<model::Schedule> {
  using Options = model::Schedule;  ///< the struct
  /// Its fields.
  static constexpr std::tuple list{
      Field{&Options::kind,
            {"lr_schedule", "Learning rate",
             "Learning-rate schedule: constant, cosine, step, linear, polynomial, "
             "exponential, inverse-sqrt or one-cycle",
             Role::resume_warn, "learning-rate schedule"},
            {},
            {.value = "NAME"}},
      Field{&Options::peak,
            {"learning_rate", kCommonOptions,
             "Peak learning rate, before --lr-scaling (default: by network and optimizer, such as "
             "0.001)",
             Role::resume_warn, "peak learning rate"},
            {{.min = 0}},
            {.alias = "lr"}},
      Field{&Options::warmup_steps,
            {"warmup_steps", "Learning rate",
             "Number of steps over which the learning rate rises to its peak; for "
             "--lr-schedule one-cycle, 0 means 30 % of the steps",
             Role::resume_warn, "warm-up steps"},
            {.min = 0}},
      Field{&Options::final_fraction,
            {"lr_final", "Learning rate",
             "Final learning rate as a fraction of the peak, for --lr-schedule cosine, "
             "linear and polynomial",
             Role::resume_warn, "final learning rate"},
            {},
            {.needs = "lr_schedule=cosine,linear,polynomial"}},
      Field{&Options::step_every,
            {"lr_step_every", "Learning rate",
             "Number of steps between reductions of the learning rate; required by "
             "--lr-schedule step and exponential",
             Role::resume_warn, "steps between reductions of the learning rate"},
            {},
            {.needs = "lr_schedule=step,exponential"}},
      Field{&Options::step_factor,
            {"lr_step_factor", "Learning rate",
             "Factor of each reduction of the learning rate, for --lr-schedule step (at "
             "once) and exponential (smoothly over --lr-step-every steps)",
             Role::resume_warn, "factor of each reduction of the learning rate"},
            {},
            {.needs = "lr_schedule=step,exponential"}},
      Field{&Options::power,
            {"lr_power", "Learning rate", "Exponent of --lr-schedule polynomial; 1 is linear",
             Role::resume_warn, "exponent of the learning-rate schedule"},
            {},
            {.needs = "lr_schedule=polynomial"}}};
};

}  // namespace lockstep::inline v0
