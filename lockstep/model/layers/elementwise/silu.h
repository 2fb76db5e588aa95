// The sigmoid linear unit, also called swish.
#pragma once

#include <cmath>

#include "lockstep/model/layers/elementwise/pointwise.h"
#include "lockstep/model/layers/elementwise/sigmoid.h"

namespace lockstep::inline v0::model {

/// The function of SiLU.
struct SiluFunction {
  static constexpr const char* kKind = "silu";       ///< Layer::kind()
  static constexpr bool kGradientReadsInput = true;  ///< see FunctionLayer

  // For one element, or for arrays of elements, for which exp is vectorized.

  /// y
  template <typename X>
  static constexpr X forward(const X& x) {
    using std::exp;
    return x / (1.0f + exp(-x));
  }
  /// The gradient of x.
  template <typename X>
  static constexpr X gradient(const X& x, const X& dy) {
    const X share = SigmoidFunction::forward(x);
    return dy * share * (1.0f + x * (1.0f - share));
  }
};

/// x / (1 + exp(-x)). Any shape.
using SiLU = FunctionLayer<SiluFunction>;

}  // namespace lockstep::inline v0::model
