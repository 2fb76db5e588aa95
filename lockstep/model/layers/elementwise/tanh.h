// The hyperbolic tangent.
#pragma once

#include <cmath>

#include "lockstep/model/layers/elementwise/pointwise.h"

namespace lockstep::model {

/// The function of Tanh.
struct TanhFunction {
  static constexpr const char* kKind = "tanh";                      ///< Layer::kind()
  static constexpr float forward(float x) { return std::tanh(x); }  ///< y
  static constexpr float gradient(float y, float dy) { return dy * (1 - y * y); }  ///< of x
};

/// tanh(x). Any shape.
using Tanh = FunctionLayer<TanhFunction>;

}  // namespace lockstep::model
