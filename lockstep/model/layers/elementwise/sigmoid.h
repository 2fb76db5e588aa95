// The logistic function.
#pragma once

#include <cmath>

#include "lockstep/model/layers/elementwise/pointwise.h"

namespace lockstep::inline v0::model {

/// The function of Sigmoid.
struct SigmoidFunction {
  static constexpr const char* kKind = "sigmoid";  ///< Layer::kind()

  // For one element, or for arrays of elements, for which exp is vectorized.

  /// y
  template <typename X>
  static constexpr X forward(const X& x) {
    using std::exp;
    return 1.0f / (1.0f + exp(-x));
  }
  /// The gradient of x.
  template <typename X>
  static constexpr X gradient(const X& y, const X& dy) {
    return dy * y * (1.0f - y);
  }
};

/// 1 / (1 + exp(-x)). Any shape.
using Sigmoid = FunctionLayer<SigmoidFunction>;

}  // namespace lockstep::inline v0::model
