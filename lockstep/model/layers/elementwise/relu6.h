// A ReLU with an upper bound.
#pragma once

#include "lockstep/model/layers/elementwise/pointwise.h"

namespace lockstep::inline v0::model {

/// The function of ReLU6.
struct Relu6Function {
  static constexpr const char* kKind = "relu6";  ///< Layer::kind()
  static constexpr float kBound = 6;             ///< the largest output
  /// y; NaN propagates.
  static constexpr float forward(float x) { return x <= 0 ? 0 : x > kBound ? kBound : x; }
  /// The gradient of x.
  static constexpr float gradient(float y, float dy) { return y > 0 && y < kBound ? dy : 0; }
};

/// min(max(x, 0), 6) (Howard et al., arXiv 1704.04861). Any shape.
using ReLU6 = FunctionLayer<Relu6Function>;

}  // namespace lockstep::inline v0::model
