// What keeps gradients of 16 bits from vanishing: the loss is multiplied before backward, the gradient divided after
// it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "lockstep/model/precision.h"

namespace lockstep::strategy {

/// How the factor is found (Micikevicius et al., ICLR 2018).
struct LossScaling {
  /// Without a scale; with one number for the whole training; with one that follows the gradients.
  enum class Kind { none, fixed, dynamic };
  Kind kind = Kind::none;      ///< which of them
  float scale = 1;             ///< of fixed; what dynamic begins with
  int steps_to_double = 2000;  ///< good steps in a row after which dynamic tries twice as much
};

/// What float16 trains with unless told otherwise.
inline constexpr LossScaling kDynamicLossScaling{.kind = LossScaling::Kind::dynamic, .scale = 65536};

/// Reads "auto", "none", "dynamic", or a number above 0; auto is nothing. Throws Error (input) that lists them.
std::optional<LossScaling> parse_loss_scaling(std::string_view text);
/// What `scaling` means for `precision`: where nothing is asked for, dynamic for float16 and none otherwise.
LossScaling loss_scaling_for(const std::optional<LossScaling>& scaling, model::Precision precision);

/// One replica's loss scale. It changes by what is known of the reduced gradient, which is the same on all replicas,
/// and so is the same on all replicas.
class LossScaler {
 public:
  /// What dynamic does not go beyond: down, where a gradient that is not finite has another reason, and up.
  static constexpr float kSmallest = 1;
  static constexpr float kLargest = 16777216;  ///< the largest scale: 2^24

  explicit LossScaler(const LossScaling& scaling);  ///< begins as `scaling` says

  bool is_dynamic() const { return scaling_.kind == LossScaling::Kind::dynamic; }  ///< whether the scale changes
  /// Whether gradients are to be looked at before they are used.
  bool is_on() const { return scaling_.kind != LossScaling::Kind::none; }
  /// Of this step.
  float scale() const { return scale_; }

  /// Once a step, with whether its reduced gradient is finite. Returns whether that is mended by the smaller scale of
  /// the steps to come: then the step is to be skipped and was none to worry about.
  bool update(bool finite);

  /// Of dynamic: good steps in a row since the scale changed. Scale and this are its whole state.
  std::int64_t good_steps() const { return good_steps_; }
  /// Continues from the values of a checkpoint, where the scale is dynamic. Throws Error (checkpoint) for values that
  /// no training writes.
  void restore(float scale, std::int64_t good_steps);

 private:
  LossScaling scaling_;
  float scale_;
  std::int64_t good_steps_ = 0;
};

}  // namespace lockstep::strategy
