// Piecewise linear approximations of smooth activations.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "lockstep/model/layers/elementwise/pointwise.h"

namespace lockstep::inline v0::model {

/// The function of HardTanh, and its options.
struct HardTanhFunction {
  static constexpr const char* kKind = "hard_tanh";  ///< Layer::kind()
  float min_value = -1;                              ///< the smallest output
  float max_value = 1;                               ///< the largest output; above min_value

  constexpr float forward(float x) const {
    return x < min_value ? min_value : (x > max_value ? max_value : x);
  }  ///< y; NaN propagates
  /// The gradient of x: 0 at the limits, as in PyTorch.
  constexpr float gradient(float y, float dy) const {
    return y > min_value && y < max_value ? dy : 0.0f;
  }

  static HardTanhFunction read(JsonObject& object);  ///< from a description
  void write(nlohmann::json& object) const;          ///< as read() reads it
  void check(const BuildContext& context) const;     ///< refuses limits in the wrong order
};

/// x limited to [min_value, max_value]. Any shape.
using HardTanh = FunctionLayer<HardTanhFunction>;

/// The function of HardSigmoid, and its options.
struct HardSigmoidFunction {
  static constexpr const char* kKind = "hard_sigmoid";  ///< Layer::kind()
  float slope = 1.0f / 6;                               ///< above 0; ONNX's default is 0.2
  float offset = 0.5f;                                  ///< y for an x of 0

  constexpr float forward(float x) const {
    const float y = slope * x + offset;
    return y < 0 ? 0.0f : (y > 1 ? 1.0f : y);
  }  ///< y
  /// The gradient of x.
  constexpr float gradient(float y, float dy) const { return y > 0 && y < 1 ? slope * dy : 0.0f; }

  static HardSigmoidFunction read(JsonObject& object);  ///< from a description
  void write(nlohmann::json& object) const;             ///< as read() reads it
  void check(const BuildContext& context) const;        ///< refuses slopes that are not above 0
};

/// slope * x + offset, limited to [0, 1]. Any shape. The defaults are those of Keras and PyTorch.
using HardSigmoid = FunctionLayer<HardSigmoidFunction>;

/// The function of HardSwish.
struct HardSwishFunction {
  static constexpr const char* kKind = "hard_swish";  ///< Layer::kind()
  static constexpr bool kGradientReadsInput = true;   ///< see FunctionLayer

  static constexpr float forward(float x) {
    return x <= -3 ? 0.0f : (x >= 3 ? x : x * (x + 3) * (1.0f / 6));
  }  ///< y
  /// The gradient of x: 0 up to -3, as in PyTorch.
  static constexpr float gradient(float x, float dy) {
    return x <= -3 ? 0.0f : (x >= 3 ? dy : dy * (x * (1.0f / 3) + 0.5f));
  }
};

/// x * HardSigmoid(x) with the default slope (Howard et al., arXiv 1905.02244). Any shape.
using HardSwish = FunctionLayer<HardSwishFunction>;

}  // namespace lockstep::inline v0::model
