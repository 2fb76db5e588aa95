#include "lockstep/strategy/step/local_steps.h"

#include <fmt/format.h>

#include <array>
#include <limits>

#include "lockstep/base/fields/spec.h"
#include "lockstep/base/text.h"

namespace lockstep::inline v0::strategy {

OuterStep parse_outer_step(std::string_view text) {
  static constexpr std::array<std::string_view, 2> kKinds = {"average", "nesterov"};
  Spec spec = Spec::parse("outer-step", text);
  OuterStep step;
  if (spec.head() == "nesterov") {
    step = kNesterovOuterStep;
    spec.read("lr", step.learning_rate, std::numeric_limits<float>::min());
    spec.read("momentum", step.momentum, 0, 1 - std::numeric_limits<float>::epsilon());
  } else if (spec.head() != "average") {
    refuse_name("outer-step", spec.head(), kKinds);
  }
  spec.finish();
  return step;
}

std::string to_string(const OuterStep& step) {
  if (step == OuterStep{}) return "average";
  return fmt::format("nesterov:lr={},momentum={}", step.learning_rate, step.momentum);
}

}  // namespace lockstep::inline v0::strategy
