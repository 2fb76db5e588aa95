// Rounds of local steps: replicas train alone, then average their parameters.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/fields/fields.h"

namespace lockstep::inline v0::strategy {

/// How a round ends. With A, the parameters at its beginning minus their average over the replicas,
/// as the gradient: v = momentum*v + A; parameters -= rate * (A + momentum*v). The standard values
/// set the parameters to their average (McMahan et al., AISTATS 2017, federated averaging).
struct OuterStep {
  float learning_rate = 1;  ///< rate of the outer step
  float momentum = 0;       ///< Nesterov momentum; 0: no velocity is stored

  bool operator==(const OuterStep&) const = default;
};

/// The slot of its velocity, in checkpoints.
inline constexpr std::string_view kOuterMomentumSlot = "outer_momentum";

/// The constants of DiLoCo (Douillard et al., arXiv 2311.08105).
inline constexpr OuterStep kNesterovOuterStep{.learning_rate = 0.7F, .momentum = 0.9F};

/// Parses "average", or "nesterov" with `lr` and `momentum`: "nesterov:lr=0.7,momentum=0.9". Throws
/// Error (input).
OuterStep parse_outer_step(std::string_view text);
/// Overload for option fields.
inline void parse_field(OuterStep& step, std::string_view /*name*/, std::string_view text) {
  step = parse_outer_step(text);
}
std::string to_string(const OuterStep& step);  ///< as parse_outer_step() reads it

/// The rounds of LocalStepsStrategy.
struct LocalSteps {
  static constexpr int kStandard = 20;  ///< local steps of a round, if the options set none

  std::optional<int> steps = {};  ///< updates of each replica between two averages; none: no rounds
  OuterStep outer = {};           ///< how a round ends
};

}  // namespace lockstep::inline v0::strategy

namespace lockstep::inline v0 {

/// The options of rounds of local steps.
template <>
struct Fields<strategy::LocalSteps> {
  using Options = strategy::LocalSteps;  ///< the struct
  /// Its fields.
  static constexpr std::tuple list{
      Field{&Options::steps,
            {"local_steps", "Replicas",
             "With --strategy local-steps: steps that each replica trains alone before "
             "parameters and optimizer are averaged. Such a round is one step of all other "
             "options (default: 20)",
             Role::resume_warn, "local steps per round"},
            {{.min = 1}},
            {.value = "N", .needs = "strategy=local-steps"}},
      Field{&Options::outer,
            {"outer_step", "Replicas",
             "With --strategy local-steps: how a round ends. average: with the mean of the "
             "parameters, weighted by samples; nesterov: with a step of Nesterov momentum "
             "towards it (standard: lr=0.7,momentum=0.9)",
             Role::resume_warn, "outer step"},
            {},
            {.value = "average|nesterov[:lr=X,momentum=X]", .needs = "strategy=local-steps"}}};
};

}  // namespace lockstep::inline v0
