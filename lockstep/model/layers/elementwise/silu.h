// The sigmoid linear unit, also called swish.
#pragma once

#include <cmath>
#include <nlohmann/json_fwd.hpp>

#include "lockstep/model/layers/elementwise/pointwise.h"
#include "lockstep/model/layers/elementwise/sigmoid.h"

namespace lockstep::inline v0::model {

/// The function of SiLU.
struct SiluFunction {
  static constexpr const char* kKind = "silu";       ///< Layer::kind()
  static constexpr bool kGradientReadsInput = true;  ///< see FunctionLayer

  float beta = 1;  ///< factor in the exponent

  // For one element, or for arrays of elements, for which exp is vectorized.

  /// y
  template <typename X>
  constexpr X forward(const X& x) const {
    using std::exp;
    return x / (1.0f + exp(-beta * x));
  }
  /// The gradient of x.
  template <typename X>
  constexpr X gradient(const X& x, const X& dy) const {
    const X scaled = beta * x;
    const X share = SigmoidFunction::forward(scaled);
    return dy * share * (1.0f + scaled * (1.0f - share));
  }

  static SiluFunction read(JsonObject& object);   ///< from a description
  void write(nlohmann::json& object) const;       ///< as read() reads it
  void check(const BuildContext& context) const;  ///< refuses factors that are not above 0
};

/// x / (1 + exp(-beta * x)), also called swish; with a beta of 1.702 an approximation of GELU. Any
/// shape.
using SiLU = FunctionLayer<SiluFunction>;

}  // namespace lockstep::inline v0::model
