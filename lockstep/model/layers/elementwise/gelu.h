// The Gaussian error linear unit.
#pragma once

#include <cmath>
#include <nlohmann/json_fwd.hpp>
#include <numbers>

#include "lockstep/model/layers/elementwise/pointwise.h"

namespace lockstep::model {

/// The function of GELU, and its option.
struct GeluFunction {
  static constexpr const char* kKind = "gelu";       ///< Layer::kind()
  static constexpr bool kGradientReadsInput = true;  ///< see FunctionLayer
  bool approximate = false;  ///< whether to use tanh instead of the error function

  /// y
  constexpr float forward(float x) const { return x * share(x); }
  /// Of x.
  constexpr float gradient(float x, float dy) const { return dy * (share(x) + x * slope(x)); }

  static GeluFunction read(JsonObject& object);  ///< from a description
  void write(nlohmann::json& object) const;      ///< as read() reads it

 private:
  static constexpr float kScale = 0.797884560802865f;  // sqrt(2 / pi)
  static constexpr float kCube = 0.044715f;

  static constexpr float tanh_of(float x) { return std::tanh(kScale * x * (1 + kCube * x * x)); }
  // The probability that a standard normal variable is below x.
  constexpr float share(float x) const {
    if (approximate) return 0.5f * (1 + tanh_of(x));
    return 0.5f * (1 + std::erf(x * (1 / std::numbers::sqrt2_v<float>)));
  }
  // The derivative of share().
  constexpr float slope(float x) const {
    if (!approximate) return 0.5f * kScale * std::exp(-0.5f * x * x);
    const float tanh = tanh_of(x);
    return 0.5f * (1 - tanh * tanh) * kScale * (1 + 3 * kCube * x * x);
  }
};

/// x times the probability that a standard normal variable is below x, or its approximation by tanh
/// (Hendrycks and Gimpel, arXiv 1606.08415). Any shape.
using GELU = FunctionLayer<GeluFunction>;

}  // namespace lockstep::model
