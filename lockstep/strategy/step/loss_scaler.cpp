#include "lockstep/strategy/step/loss_scaler.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::inline v0::strategy {

std::optional<LossScaling> parse_loss_scaling(std::string_view text) {
  if (text == "auto") return std::nullopt;
  if (text == "none") return LossScaling{};
  if (text == "dynamic") return kDynamicLossScaling;
  const auto scale = parse_number<float>(text);
  if (!scale || !(*scale > 0) || !std::isfinite(*scale)) {
    static constexpr std::array<std::string_view, 3> kNames = {"auto", "none", "dynamic"};
    throw Error(ErrorCategory::input, "loss-scale",
                "expected auto, none, dynamic or a number above 0",
                scale ? fmt::format("got \"{}\"", text) : got_name(text, kNames));
  }
  return LossScaling{.kind = LossScaling::Kind::fixed, .scale = *scale};
}

std::string to_string(const std::optional<LossScaling>& scaling) {
  if (!scaling) return "auto";
  if (scaling->kind == LossScaling::Kind::none) return "none";
  if (scaling->kind == LossScaling::Kind::fixed) return fmt::format("{}", scaling->scale);
  if (scaling->scale == kDynamicLossScaling.scale &&
      scaling->steps_to_double == kDynamicLossScaling.steps_to_double)
    return "dynamic";
  return fmt::format("dynamic from {}, doubled after {} good steps", scaling->scale,
                     scaling->steps_to_double);
}

LossScaling loss_scaling_for(const std::optional<LossScaling>& scaling,
                             model::Precision precision) {
  if (scaling) return *scaling;
  return precision == model::Precision::float16 ? kDynamicLossScaling : LossScaling{};
}

LossScaler::LossScaler(const LossScaling& scaling)
    : scaling_(scaling), scale_(scaling.kind == LossScaling::Kind::none ? 1 : scaling.scale) {
  LOCKSTEP_CHECK(scale_ > 0 && std::isfinite(scale_));
  LOCKSTEP_CHECK_OP(scaling_.steps_to_double, >, 0);
}

bool LossScaler::update(bool finite) {
  if (!is_dynamic()) return false;
  if (!finite) {
    good_steps_ = 0;
    if (scale_ <= kSmallest) return false;
    scale_ = std::max(kSmallest, scale_ / 2);
    return true;
  }
  if (++good_steps_ < scaling_.steps_to_double) return false;
  good_steps_ = 0;
  if (scale_ < kLargest) scale_ = std::min(kLargest, 2 * scale_);
  return false;
}

void LossScaler::restore(float scale, std::int64_t good_steps) {
  if (!is_dynamic()) return;
  if (!(scale > 0) || !std::isfinite(scale) || good_steps < 0)
    throw Error(ErrorCategory::checkpoint, "loss scale",
                "expected a finite scale above 0 and a count of good steps in the checkpoint",
                fmt::format("got {} and {}", scale, good_steps));
  scale_ = scale;
  good_steps_ = good_steps;
}

}  // namespace lockstep::inline v0::strategy
