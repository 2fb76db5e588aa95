// The logistic function.
#pragma once

#include <cmath>

#include "lockstep/model/layers/elementwise/pointwise.h"

namespace lockstep::model {

/// The function of Sigmoid.
struct SigmoidFunction {
  static constexpr const char* kKind = "sigmoid";                             ///< Layer::kind()
  static constexpr float forward(float x) { return 1 / (1 + std::exp(-x)); }  ///< y
  static constexpr float gradient(float y, float dy) { return dy * y * (1 - y); }  ///< of x
};

/// 1 / (1 + exp(-x)). Any shape.
using Sigmoid = FunctionLayer<SigmoidFunction>;

}  // namespace lockstep::model
