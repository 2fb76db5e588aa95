// Smooth activations of exponentials and quotients.
#pragma once

#include <cmath>
#include <concepts>
#include <nlohmann/json_fwd.hpp>

#include "lockstep/model/layers/elementwise/pointwise.h"

namespace lockstep::inline v0::model {

/// The function of ELU, and its option.
struct EluFunction {
  static constexpr const char* kKind = "elu";  ///< Layer::kind()
  float alpha = 1;                             ///< -y for x far below 0; at least 0

  /// y
  template <std::floating_point X>
  constexpr X forward(X x) const {
    return x > 0 ? x : alpha * std::expm1(x);
  }
  /// The gradient of x.
  constexpr float gradient(float y, float dy) const { return y > 0 ? dy : dy * (y + alpha); }

  static EluFunction read(JsonObject& object);    ///< from a description
  void write(nlohmann::json& object) const;       ///< as read() reads it
  void check(const BuildContext& context) const;  ///< refuses values of alpha below 0
};

/// x where it is above 0, otherwise alpha * (exp(x) - 1) (Clevert, Unterthiner and Hochreiter,
/// arXiv 1511.07289). Any shape.
using ELU = FunctionLayer<EluFunction>;

/// The function of SELU.
struct SeluFunction {
  static constexpr const char* kKind = "selu";          ///< Layer::kind()
  static constexpr float kScale = 1.0507009873554805f;  ///< slope above 0
  static constexpr float kAlpha = 1.6732632423543772f;  ///< ELU's alpha

  /// y
  template <std::floating_point X>
  static constexpr X forward(X x) {
    return kScale * (x > 0 ? x : kAlpha * std::expm1(x));
  }
  /// The gradient of x.
  static constexpr float gradient(float y, float dy) {
    return dy * (y > 0 ? kScale : y + kScale * kAlpha);
  }
};

/// The ELU that keeps mean 0 and variance 1 (Klambauer et al., arXiv 1706.02515). Any shape.
using SELU = FunctionLayer<SeluFunction>;

/// The function of Softplus.
struct SoftplusFunction {
  static constexpr const char* kKind = "softplus";  ///< Layer::kind()

  /// y
  template <std::floating_point X>
  static constexpr X forward(X x) {
    return (x > 0 ? x : X(0)) + std::log1p(std::exp(-std::abs(x)));
  }
  /// The gradient of x, with 1 - exp(-y).
  template <std::floating_point X>
  static constexpr X gradient(X y, X dy) {
    return -std::expm1(-y) * dy;
  }
};

/// log(1 + exp(x)). Any shape.
using Softplus = FunctionLayer<SoftplusFunction>;

/// The function of Softsign.
struct SoftsignFunction {
  static constexpr const char* kKind = "softsign";  ///< Layer::kind()

  /// y
  template <std::floating_point X>
  static constexpr X forward(X x) {
    return x / (1 + std::abs(x));
  }
  /// The gradient of x, where 1 - |y| is 1 / (1 + |x|).
  template <std::floating_point X>
  static constexpr X gradient(X y, X dy) {
    const X share = 1 - std::abs(y);
    return dy * share * share;
  }
};

/// x / (1 + |x|). Any shape.
using Softsign = FunctionLayer<SoftsignFunction>;

/// The function of Mish.
struct MishFunction {
  static constexpr const char* kKind = "mish";       ///< Layer::kind()
  static constexpr bool kGradientReadsInput = true;  ///< see FunctionLayer

  /// y
  template <std::floating_point X>
  static constexpr X forward(X x) {
    return x * std::tanh(SoftplusFunction::forward(x));
  }
  /// The gradient of x.
  template <std::floating_point X>
  static constexpr X gradient(X x, X dy) {
    const X share = std::tanh(SoftplusFunction::forward(x));
    const X sigmoid = 1 / (1 + std::exp(-x));
    return dy * (share + x * sigmoid * (1 - share * share));
  }
};

/// x * tanh(softplus(x)) (Misra, arXiv 1908.08681). Any shape.
using Mish = FunctionLayer<MishFunction>;

}  // namespace lockstep::inline v0::model
