// The hyperbolic tangent.
#pragma once

#include <cmath>

#include "lockstep/model/layers/elementwise/pointwise.h"

namespace lockstep::inline v0::model {

/// The function of Tanh.
struct TanhFunction {
  static constexpr const char* kKind = "tanh";  ///< Layer::kind()

  // For one element, or for arrays of elements, for which tanh is vectorized.

  /// y
  template <typename X>
  static constexpr X forward(const X& x) {
    using std::tanh;
    return tanh(x);
  }
  /// The gradient of x.
  template <typename X>
  static constexpr X gradient(const X& y, const X& dy) {
    return dy * (1.0f - y * y);
  }
};

/// tanh(x). Any shape.
using Tanh = FunctionLayer<TanhFunction>;

}  // namespace lockstep::inline v0::model
