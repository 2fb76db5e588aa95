// Multiplication by a number and addition of a number.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "lockstep/model/layers/elementwise/pointwise.h"

namespace lockstep::inline v0::model {

/// The function of Rescaling, and its options.
struct RescalingFunction {
  static constexpr const char* kKind = "rescaling";  ///< Layer::kind()
  float scale = 1;                                   ///< factor
  float offset = 0;                                  ///< added to the product
  /// Factor on the gradient. With 1 / scale^2, the layers before are trained with a squared error
  /// as on targets (t - offset) / scale, while outputs and losses are in the unit of t.
  float gradient_factor = 1;

  constexpr float forward(float x) const { return x * scale + offset; }  ///< y
  /// The gradient of x.
  constexpr float gradient(float /*y*/, float dy) const { return dy * (scale * gradient_factor); }

  static RescalingFunction read(JsonObject& object);  ///< from a description
  void write(nlohmann::json& object) const;           ///< as read() reads it
  void check(const BuildContext& context) const;      ///< refuses numbers that are not finite
};

/// x * scale + offset, with numbers that are not trained. Any shape.
using Rescaling = FunctionLayer<RescalingFunction>;

}  // namespace lockstep::inline v0::model
