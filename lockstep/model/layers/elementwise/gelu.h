// The Gaussian error linear unit.
#pragma once

#include <cmath>
#include <nlohmann/json_fwd.hpp>
#include <numbers>

#include "lockstep/model/layers/elementwise/pointwise.h"

namespace lockstep::inline v0::model {

/// The function of GELU, and its option.
struct GeluFunction {
  static constexpr const char* kKind = "gelu";       ///< Layer::kind()
  static constexpr bool kGradientReadsInput = true;  ///< see FunctionLayer
  bool approximate = false;  ///< whether to use tanh instead of the error function

  // For one element, or for arrays of elements, for which erf and exp are vectorized.

  /// y
  template <typename X>
  constexpr X forward(const X& x) const {
    return x * share(x);
  }
  /// The gradient of x.
  template <typename X>
  constexpr X gradient(const X& x, const X& dy) const {
    if (!approximate) return dy * (share(x) + x * density(x));
    const X below = share(x);
    const X slope = below * (1.0f - below) * (2 * kScale) * (1.0f + 3 * kCube * x * x);
    return dy * (below + x * slope);
  }

  static GeluFunction read(JsonObject& object);  ///< from a description
  void write(nlohmann::json& object) const;      ///< as read() reads it

 private:
  static constexpr float kScale = 0.797884560802865f;  // sqrt(2 / pi)
  static constexpr float kCube = 0.044715f;

  // The probability that a standard normal variable is below x.
  template <typename X>
  constexpr X share(const X& x) const {
    using std::erf;
    using std::exp;
    if (approximate)  // (1 + tanh u) / 2 = 1 / (1 + e^(-2u))
      return 1.0f / (1.0f + exp((-2 * kScale) * x * (1.0f + kCube * x * x)));
    return 0.5f * (1.0f + erf(x * (1 / std::numbers::sqrt2_v<float>)));
  }
  // The derivative of share(), unless it is approximate.
  template <typename X>
  static constexpr X density(const X& x) {
    using std::exp;
    return 0.5f * kScale * exp(-0.5f * x * x);
  }
};

/// x times the probability that a standard normal variable is below x, or its approximation by tanh
/// (Hendrycks and Gimpel, arXiv 1606.08415). Any shape.
using GELU = FunctionLayer<GeluFunction>;

}  // namespace lockstep::inline v0::model
