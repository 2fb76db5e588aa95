// Rounding to the precision of an 8-bit integer.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "lockstep/model/layers/elementwise/pointwise.h"

namespace lockstep::inline v0::model {

/// A type of 8-bit integers.
enum class Int8Type {
  int8,   ///< -128 to 127
  uint8,  ///< 0 to 255
};

/// The function of FakeQuantize, and its options.
struct FakeQuantizeFunction {
  static constexpr const char* kKind = "fake_quantize";  ///< Layer::kind()
  static constexpr bool kGradientReadsInput = true;      ///< see FunctionLayer

  float scale = 1;                  ///< step between values; above 0
  int zero_point = 0;               ///< the integer for 0; a value of `dtype`
  Int8Type dtype = Int8Type::int8;  ///< type of the integers

  /// The least integer minus the zero point.
  constexpr float least() const {
    return static_cast<float>((dtype == Int8Type::int8 ? -128 : 0) - zero_point);
  }
  /// The largest integer minus the zero point.
  constexpr float largest() const {
    return static_cast<float>((dtype == Int8Type::int8 ? 127 : 255) - zero_point);
  }

  /// y
  constexpr float forward(float x) const {
    const float level = rounded(x / scale);
    return (level < least() ? least() : (level > largest() ? largest() : level)) * scale;
  }
  /// The gradient of x.
  constexpr float gradient(float x, float dy) const {
    const float level = rounded(x / scale);
    return level >= least() && level <= largest() ? dy : 0.0f;
  }

  static FakeQuantizeFunction read(JsonObject& object);  ///< from a description
  void write(nlohmann::json& object) const;              ///< as read() reads it
  void check(const BuildContext& context) const;         ///< refuses invalid scales and zero points

 private:
  // Rounds to the nearest integer, ties to even, by instructions that any CPU and GPU vectorizes: a
  // sum of this size has no fraction. Inexact above 2^22, which is far outside all ranges.
  static constexpr float rounded(float x) {
    constexpr float kNoFraction = 12582912;  // 1.5 * 2^23
    return (x + kNoFraction) - kNoFraction;
  }
};

/// (clamp(round(x / scale) + zero_point, least, largest of dtype) - zero_point) * scale, with ties
/// to even: what remains of x when it is stored as an 8-bit integer, as QuantizeLinear and
/// DequantizeLinear of ONNX compute it. The gradient passes straight through inside the range and
/// is 0 outside (Jacob et al., CVPR 2018; fake_quantize_per_tensor_affine of PyTorch). Any shape.
using FakeQuantize = FunctionLayer<FakeQuantizeFunction>;

}  // namespace lockstep::inline v0::model
