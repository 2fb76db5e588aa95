// A ReLU with a slope for negative values.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "lockstep/model/layers/elementwise/pointwise.h"

namespace lockstep::inline v0::model {

/// The function of LeakyReLU, and its option.
struct LeakyReluFunction {
  static constexpr const char* kKind = "leaky_re_lu";  ///< Layer::kind()
  /// Factor on values below 0; not negative, so that the output has the sign of the input. The
  /// default is that of Keras's layer; PyTorch has 0.01.
  float negative_slope = 0.3f;

  constexpr float forward(float x) const { return x > 0 ? x : negative_slope * x; }  ///< y
  /// The gradient of x.
  constexpr float gradient(float y, float dy) const { return y > 0 ? dy : negative_slope * dy; }

  static LeakyReluFunction read(JsonObject& object);  ///< from a description
  void write(nlohmann::json& object) const;           ///< as read() reads it
  void check(const BuildContext& context) const;      ///< refuses slopes below 0
};

/// x where it is above 0, otherwise negative_slope * x (Maas, Hannun and Ng, ICML 2013). Any shape.
using LeakyReLU = FunctionLayer<LeakyReluFunction>;

}  // namespace lockstep::inline v0::model
