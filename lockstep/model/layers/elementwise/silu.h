// The sigmoid linear unit, also called swish.
#pragma once

#include <cmath>

#include "lockstep/model/layers/elementwise/pointwise.h"

namespace lockstep::model {

/// The function of SiLU.
struct SiluFunction {
  static constexpr const char* kKind = "silu";                                ///< Layer::kind()
  static constexpr bool kGradientReadsInput = true;                           ///< see FunctionLayer
  static constexpr float forward(float x) { return x / (1 + std::exp(-x)); }  ///< y
  /// Of x.
  static constexpr float gradient(float x, float dy) {
    const float share = 1 / (1 + std::exp(-x));
    return dy * share * (1 + x * (1 - share));
  }
};

/// x / (1 + exp(-x)). Any shape.
using SiLU = FunctionLayer<SiluFunction>;

}  // namespace lockstep::model
