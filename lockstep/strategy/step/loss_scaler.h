// Loss scaling, which avoids underflow of 16-bit gradients: the loss is multiplied by a factor
// before the backward pass, and the gradient is divided by it afterwards.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/model/tensor/tensor.h"

namespace lockstep::inline v0::strategy {

/// How the factor is determined (Micikevicius et al., ICLR 2018).
struct LossScaling {
  /// No scale, a constant scale, or a scale that adapts to the gradients.
  enum class Kind { none, fixed, dynamic };
  Kind kind = Kind::none;  ///< which of these
  float scale = 1;         ///< the scale of fixed; the initial scale of dynamic
  /// Number of consecutive good steps after which dynamic doubles the scale.
  int steps_to_double = 2000;
};

/// The default for float16.
inline constexpr LossScaling kDynamicLossScaling{.kind = LossScaling::Kind::dynamic,
                                                 .scale = 65536};

/// Parses "auto" (nullopt), "none", "dynamic", or a number above 0. Throws Error (input).
std::optional<LossScaling> parse_loss_scaling(std::string_view text);
/// Returns the text that parse_loss_scaling() reads. A dynamic scale with other numbers than
/// kDynamicLossScaling is described in words.
std::string to_string(const std::optional<LossScaling>& scaling);
/// Returns `scaling` if it is set, else dynamic scaling for float16 and none otherwise.
LossScaling loss_scaling_for(const std::optional<LossScaling>& scaling, model::Precision precision);

/// The loss scale of one replica. It depends only on the reduced gradients, and is therefore the
/// same on all replicas.
class LossScaler {
 public:
  /// The smallest dynamic scale; a gradient that is not finite at this scale has another cause.
  static constexpr float kSmallest = 1;
  static constexpr float kLargest = 16777216;  ///< the largest scale: 2^24

  /// Starts with `scaling.scale`.
  explicit LossScaler(const LossScaling& scaling);

  /// Whether the scale changes.
  bool is_dynamic() const { return scaling_.kind == LossScaling::Kind::dynamic; }
  /// Whether gradients must be checked for overflow before they are used.
  bool is_on() const { return scaling_.kind != LossScaling::Kind::none; }
  /// The scale of this step.
  float scale() const { return scale_; }

  /// Must be called once per step. `finite`: whether the reduced gradient is finite. Returns true
  /// if the scale was reduced because of an overflow: the step must be skipped, but does not
  /// indicate divergence.
  bool update(bool finite);

  /// Dynamic only: number of consecutive good steps since the scale changed. This and scale() are
  /// the whole state.
  std::int64_t good_steps() const { return good_steps_; }
  /// Restores a dynamic scale from a checkpoint. Throws Error (checkpoint) for invalid values.
  void restore(float scale, std::int64_t good_steps);

 private:
  LossScaling scaling_;
  float scale_;
  std::int64_t good_steps_ = 0;
};

}  // namespace lockstep::inline v0::strategy
