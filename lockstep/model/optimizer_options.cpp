#include "lockstep/model/optimizer_options.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep::model {
namespace {

void need(bool holds, std::string_view optimizer, std::string_view expected, float actual) {
  if (!holds) throw Error(ErrorCategory::input, optimizer, expected, fmt::format("got {}", actual));
}

void check(const Sgd& sgd) {
  need(sgd.momentum >= 0 && sgd.momentum < 1, "sgd", "expected momentum from 0 to below 1",
       sgd.momentum);
  need(sgd.weight_decay >= 0, "sgd", "expected weight decay of 0 or more", sgd.weight_decay);
  need(!sgd.nesterov || sgd.momentum > 0, "sgd", "expected momentum above 0 for Nesterov momentum",
       sgd.momentum);
}

template <typename AdamLike>
void check_adam(const AdamLike& adam, std::string_view name) {
  need(adam.beta1 >= 0 && adam.beta1 < 1, name, "expected beta1 from 0 to below 1", adam.beta1);
  need(adam.beta2 >= 0 && adam.beta2 < 1, name, "expected beta2 from 0 to below 1", adam.beta2);
  // Must be positive also because the padding between parameters has gradient 0 and must stay 0,
  // not 0 / 0.
  need(adam.epsilon > 0, name, "expected epsilon above 0", adam.epsilon);
  need(adam.weight_decay >= 0, name, "expected weight decay of 0 or more", adam.weight_decay);
}

void check(const Adam& adam) { check_adam(adam, "adam"); }
void check(const AdamW& adamw) { check_adam(adamw, "adamw"); }
void check(const Lamb& lamb) { check_adam(lamb, "lamb"); }

void check(const Lars& lars) {
  need(lars.momentum >= 0 && lars.momentum < 1, "lars", "expected momentum from 0 to below 1",
       lars.momentum);
  need(lars.weight_decay >= 0, "lars", "expected weight decay of 0 or more", lars.weight_decay);
  need(lars.trust_coefficient > 0, "lars", "expected a trust coefficient above 0",
       lars.trust_coefficient);
  need(lars.epsilon >= 0, "lars", "expected epsilon of 0 or more", lars.epsilon);
}

std::string describe(const Sgd& sgd) {
  std::string text = "sgd(";
  if (sgd.momentum != 0)
    text += fmt::format("momentum={}, {}", sgd.momentum, sgd.nesterov ? "nesterov, " : "");
  return text + fmt::format("weight_decay={})", sgd.weight_decay);
}

template <typename AdamLike>
std::string describe_adam(const AdamLike& adam, std::string_view name) {
  return fmt::format("{}(beta1={}, beta2={}, epsilon={}, weight_decay={})", name, adam.beta1,
                     adam.beta2, adam.epsilon, adam.weight_decay);
}

std::string describe(const Adam& adam) { return describe_adam(adam, "adam"); }
std::string describe(const AdamW& adamw) { return describe_adam(adamw, "adamw"); }
std::string describe(const Lamb& lamb) { return describe_adam(lamb, "lamb"); }

std::string describe(const Lars& lars) {
  return fmt::format("lars(momentum={}, weight_decay={}, trust_coefficient={}, epsilon={})",
                     lars.momentum, lars.weight_decay, lars.trust_coefficient, lars.epsilon);
}

using Names = std::vector<std::string>;
Names slots_of(const Sgd& sgd) { return sgd.momentum == 0 ? Names{} : Names{"momentum"}; }
Names slots_of(const Adam&) { return {"m", "v"}; }
Names slots_of(const AdamW&) { return {"m", "v"}; }
Names slots_of(const Lars&) {
  return {"velocity"};
}  // not "momentum": it includes the learning rate
Names slots_of(const Lamb&) { return {"m", "v"}; }

// 1 - beta^step: the sum of the weights of a running mean after `step` steps.
double weight_of_steps(float beta, std::int64_t step) {
  return 1 - std::pow(static_cast<double>(beta), static_cast<double>(step));
}

template <typename AdamLike>
Moments moments(const AdamLike& adam, std::int64_t step) {
  return {.beta1 = adam.beta1,
          .one_minus_beta1 = static_cast<float>(1 - static_cast<double>(adam.beta1)),
          .beta2 = adam.beta2,
          .one_minus_beta2 = static_cast<float>(1 - static_cast<double>(adam.beta2)),
          .epsilon = adam.epsilon,
          .root_correction = static_cast<float>(1 / std::sqrt(weight_of_steps(adam.beta2, step)))};
}

template <typename AdamLike>
AdamUpdate adam_update(const AdamLike& adam, const UpdateContext& context, float l2, float shrink) {
  return {.moments = moments(adam, context.step),
          .corrected_rate =
              static_cast<float>(context.learning_rate / weight_of_steps(adam.beta1, context.step)),
          .scale = context.gradient_scale,
          .l2 = l2,
          .shrink = shrink};
}

}  // namespace

std::string to_string(const OptimizerOptions& options) {
  return std::visit([](const auto& chosen) { return describe(chosen); }, options);
}

void check_options(const OptimizerOptions& options) {
  std::visit([](const auto& chosen) { check(chosen); }, options);
}

std::vector<std::string> slot_names(const OptimizerOptions& options) {
  return std::visit([](const auto& chosen) { return slots_of(chosen); }, options);
}

bool is_layer_wise(const OptimizerOptions& options) {
  return std::holds_alternative<Lars>(options) || std::holds_alternative<Lamb>(options);
}

SgdUpdate update_of(const Sgd& sgd, const UpdateContext& context) {
  return {.rate = context.learning_rate,
          .scale = context.gradient_scale,
          .decay = context.decays ? sgd.weight_decay : 0,
          .momentum = sgd.momentum};
}

AdamUpdate update_of(const Adam& adam, const UpdateContext& context) {
  return adam_update(adam, context, context.decays ? adam.weight_decay : 0, 1);
}

AdamUpdate update_of(const AdamW& adamw, const UpdateContext& context) {
  const double decay = context.decays ? static_cast<double>(adamw.weight_decay) : 0;
  return adam_update(adamw, context, 0,
                     static_cast<float>(1 - static_cast<double>(context.learning_rate) * decay));
}

LarsUpdate update_of(const Lars& lars, const UpdateContext& context) {
  return {.rate = context.learning_rate,
          .scale = context.gradient_scale,
          .decay = context.decays ? lars.weight_decay : 0,
          .momentum = lars.momentum,
          .trust_coefficient = lars.trust_coefficient,
          .epsilon = lars.epsilon,
          .adapts = context.decays};
}

LambUpdate update_of(const Lamb& lamb, const UpdateContext& context) {
  return {.moments = moments(lamb, context.step),
          .correction = static_cast<float>(1 / weight_of_steps(lamb.beta1, context.step)),
          .rate = context.learning_rate,
          .scale = context.gradient_scale,
          .decay = context.decays ? lamb.weight_decay : 0,
          .adapts = context.decays};
}

}  // namespace lockstep::model
