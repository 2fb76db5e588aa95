#include "lockstep/model/optimizer/optimizer_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <type_traits>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::model {
namespace {

template <typename T>
constexpr bool kIsCustomOptimizer = std::is_same_v<T, CustomOptimizerPointer>;

// Names of a CustomOptimizer are part of the names of tensors and of descriptions.
void need_name(const std::string& what, const std::string& name) {
  constexpr std::string_view kOthers = "_-.";
  const auto is_allowed = [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           kOthers.find(c) != std::string_view::npos;
  };
  if (name.empty() || !std::ranges::all_of(name, is_allowed))
    throw Error(
        ErrorCategory::input, "optimizer",
        fmt::format("expected letters, digits, \"_\", \"-\" and \".\" as the name of {}", what),
        fmt::format("got \"{}\"", name));
}

void check(const CustomOptimizerPointer& custom) {
  if (!custom)
    throw Error(ErrorCategory::input, "optimizer", "expected an optimizer", "got a null pointer");
  const std::string name = custom->name();
  need_name("the optimizer", name);
  const std::vector<std::string> slots = custom->slots();
  for (auto slot = slots.begin(); slot != slots.end(); ++slot) {
    need_name("a slot", *slot);
    if (*slot == kAverageSlot)
      throw Error(ErrorCategory::input, name, "expected another name of a slot",
                  fmt::format("got \"{}\", which is the average of the parameters", *slot));
    if (std::find(slots.begin(), slot, *slot) != slot)
      throw Error(ErrorCategory::input, name, "expected slots of different names",
                  fmt::format("got \"{}\" twice", *slot));
  }
  if (const float decay = custom->weight_decay(); !(decay >= 0 && std::isfinite(decay)))
    throw Error(ErrorCategory::input, name, "expected weight decay of 0 or more",
                fmt::format("got {}", decay));
}

void need(bool holds, std::string_view optimizer, std::string_view expected, float actual) {
  if (holds && std::isfinite(actual)) return;
  throw Error(ErrorCategory::input, optimizer, expected, fmt::format("got {}", actual));
}

void check(const Sgd& sgd) {
  need(sgd.momentum >= 0 && sgd.momentum < 1, sgd.kName, "expected momentum from 0 to below 1",
       sgd.momentum);
  need(sgd.weight_decay >= 0, sgd.kName, "expected weight decay of 0 or more", sgd.weight_decay);
  need(!sgd.nesterov || sgd.momentum > 0, sgd.kName,
       "expected momentum above 0 for Nesterov momentum", sgd.momentum);
}

template <typename AdamLike>
void check(const AdamLike& adam) {
  const std::string_view name = adam.kName;
  need(adam.beta1 >= 0 && adam.beta1 < 1, name, "expected beta1 from 0 to below 1", adam.beta1);
  need(adam.beta2 >= 0 && adam.beta2 < 1, name, "expected beta2 from 0 to below 1", adam.beta2);
  // Also, the padding between parameters has gradient 0 and must remain 0, not become 0 / 0.
  need(adam.epsilon > 0, name, "expected epsilon above 0", adam.epsilon);
  need(adam.weight_decay >= 0, name, "expected weight decay of 0 or more", adam.weight_decay);
}

void check(const Lars& lars) {
  need(lars.momentum >= 0 && lars.momentum < 1, lars.kName, "expected momentum from 0 to below 1",
       lars.momentum);
  need(lars.weight_decay >= 0, lars.kName, "expected weight decay of 0 or more", lars.weight_decay);
  need(lars.trust_coefficient > 0, lars.kName, "expected a trust coefficient above 0",
       lars.trust_coefficient);
  need(lars.epsilon >= 0, lars.kName, "expected epsilon of 0 or more", lars.epsilon);
}

void check(const RmsProp& rmsprop) {
  need(rmsprop.rho >= 0 && rmsprop.rho < 1, rmsprop.kName, "expected rho from 0 to below 1",
       rmsprop.rho);
  need(rmsprop.momentum >= 0 && rmsprop.momentum < 1, rmsprop.kName,
       "expected momentum from 0 to below 1", rmsprop.momentum);
  need(rmsprop.epsilon > 0, rmsprop.kName, "expected epsilon above 0", rmsprop.epsilon);
  need(rmsprop.weight_decay >= 0, rmsprop.kName, "expected weight decay of 0 or more",
       rmsprop.weight_decay);
}

void check(const Adagrad& adagrad) {
  need(adagrad.initial_accumulator >= 0, adagrad.kName,
       "expected an initial accumulator of 0 or more", adagrad.initial_accumulator);
  need(adagrad.epsilon > 0, adagrad.kName, "expected epsilon above 0", adagrad.epsilon);
  need(adagrad.weight_decay >= 0, adagrad.kName, "expected weight decay of 0 or more",
       adagrad.weight_decay);
}

using Hyperparameters = std::vector<std::pair<std::string_view, float*>>;

Hyperparameters hyperparameters(Sgd& sgd) {
  return {{"momentum", &sgd.momentum}, {"weight_decay", &sgd.weight_decay}};
}

template <typename AdamLike>
Hyperparameters hyperparameters(AdamLike& adam) {
  return {{"beta1", &adam.beta1},
          {"beta2", &adam.beta2},
          {"epsilon", &adam.epsilon},
          {"weight_decay", &adam.weight_decay}};
}

Hyperparameters hyperparameters(Lars& lars) {
  return {{"momentum", &lars.momentum},
          {"weight_decay", &lars.weight_decay},
          {"trust_coefficient", &lars.trust_coefficient},
          {"epsilon", &lars.epsilon}};
}

Hyperparameters hyperparameters(RmsProp& rmsprop) {
  return {{"rho", &rmsprop.rho},
          {"momentum", &rmsprop.momentum},
          {"epsilon", &rmsprop.epsilon},
          {"weight_decay", &rmsprop.weight_decay}};
}

Hyperparameters hyperparameters(Adagrad& adagrad) {
  return {{"initial_accumulator", &adagrad.initial_accumulator},
          {"epsilon", &adagrad.epsilon},
          {"weight_decay", &adagrad.weight_decay}};
}

Hyperparameters hyperparameters(CustomOptimizerPointer& /*custom*/) { return {}; }

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

OptimizerUpdate constants(const Sgd& sgd, const UpdateContext& context) {
  const float decay = context.decays ? sgd.weight_decay : 0;
  if (sgd.momentum == 0)
    return SgdUpdate{
        .rate = context.learning_rate, .scale = context.gradient_scale, .decay = decay};
  const MomentumUpdate update{.rate = context.learning_rate,
                              .scale = context.gradient_scale,
                              .decay = decay,
                              .momentum = sgd.momentum};
  if (sgd.nesterov) return NesterovUpdate{update};
  return update;
}

AdamUpdate constants(const Adam& adam, const UpdateContext& context) {
  return adam_update(adam, context, context.decays ? adam.weight_decay : 0, 1);
}

AdamUpdate constants(const AdamW& adamw, const UpdateContext& context) {
  const double decay = context.decays ? static_cast<double>(adamw.weight_decay) : 0;
  return adam_update(adamw, context, 0,
                     static_cast<float>(1 - static_cast<double>(context.learning_rate) * decay));
}

LarsUpdate constants(const Lars& lars, const UpdateContext& context) {
  return {.rate = context.learning_rate,
          .scale = context.gradient_scale,
          .decay = context.decays ? lars.weight_decay : 0,
          .momentum = lars.momentum,
          .trust_coefficient = lars.trust_coefficient,
          .epsilon = lars.epsilon,
          .adapts = context.decays};
}

LambUpdate constants(const Lamb& lamb, const UpdateContext& context) {
  return {.moments = moments(lamb, context.step),
          .correction = static_cast<float>(1 / weight_of_steps(lamb.beta1, context.step)),
          .rate = context.learning_rate,
          .scale = context.gradient_scale,
          .decay = context.decays ? lamb.weight_decay : 0,
          .adapts = context.decays};
}

OptimizerUpdate constants(const RmsProp& rmsprop, const UpdateContext& context) {
  const RmsPropUpdate update{
      .rate = context.learning_rate,
      .scale = context.gradient_scale,
      .decay = context.decays ? rmsprop.weight_decay : 0,
      .rho = rmsprop.rho,
      .one_minus_rho = static_cast<float>(1 - static_cast<double>(rmsprop.rho)),
      .epsilon = rmsprop.epsilon};
  if (rmsprop.momentum == 0) return update;
  return RmsPropMomentumUpdate{update, rmsprop.momentum};
}

AdagradUpdate constants(const Adagrad& adagrad, const UpdateContext& context) {
  return {.rate = context.learning_rate,
          .scale = context.gradient_scale,
          .decay = context.decays ? adagrad.weight_decay : 0,
          .initial_accumulator = adagrad.initial_accumulator,
          .epsilon = adagrad.epsilon};
}

template <typename... Options>
std::vector<OptimizerOptions> defaults_of(std::variant<Options...>* /*type*/) {
  std::vector<OptimizerOptions> all;
  const auto add = [&]<typename T>(T options) {
    if constexpr (!kIsCustomOptimizer<T>) all.emplace_back(options);
  };
  (add(Options()), ...);
  return all;
}

}  // namespace

OptimizerUpdate update_of(const OptimizerOptions& options, const UpdateContext& context) {
  return std::visit(
      [&]<typename T>(T chosen) -> OptimizerUpdate {
        if constexpr (kIsCustomOptimizer<T>) {
          LOCKSTEP_CHECK(false && "a CustomOptimizer has no constants");
          return {};
        } else {
          if (context.weight_decay) chosen.weight_decay = *context.weight_decay;
          return constants(chosen, context);
        }
      },
      options);
}

std::vector<OptimizerOptions> all_optimizers() {
  return defaults_of(static_cast<OptimizerOptions*>(nullptr));
}

std::string name_of(const OptimizerOptions& options) {
  return std::visit(
      []<typename T>(const T& chosen) -> std::string {
        if constexpr (kIsCustomOptimizer<T>)
          return chosen ? chosen->name() : "custom_optimizer";
        else
          return std::string(T::kName);
      },
      options);
}

std::string to_string(const OptimizerOptions& options) {
  std::string text = name_of(options);
  char separator = ':';
  for (const auto& [name, value] : hyperparameters_of(options)) {
    text += fmt::format("{}{}=", std::exchange(separator, ','), name);
    if (const bool* const flag = std::get_if<bool>(&value))
      text += fmt::format("{}", *flag);
    else
      text += fmt::format("{}", static_cast<float>(std::get<double>(value)));
  }
  return text;
}

std::optional<float> learning_rate_of(const OptimizerOptions& options) {
  return std::visit(
      []<typename T>(const T& chosen) -> std::optional<float> {
        if constexpr (kIsCustomOptimizer<T>)
          return std::nullopt;
        else
          return chosen.learning_rate;
      },
      options);
}

float* find_hyperparameter(OptimizerOptions& options, std::string_view name) {
  const auto all = std::visit([](auto& chosen) { return hyperparameters(chosen); }, options);
  for (const auto& [candidate, value] : all)
    if (candidate == name) return value;
  return nullptr;
}

std::vector<std::pair<std::string, std::variant<bool, double>>> hyperparameters_of(
    OptimizerOptions options) {
  std::vector<std::pair<std::string, std::variant<bool, double>>> all;
  const auto add = [&all](std::string_view name, float value) {
    all.emplace_back(name, static_cast<double>(value));
  };
  if (const auto* const custom = std::get_if<CustomOptimizerPointer>(&options)) {
    if (*custom)
      for (const auto& [name, value] : (*custom)->hyperparameters()) add(name, value);
    return all;
  }
  for (const auto& [name, value] :
       std::visit([](auto& chosen) { return hyperparameters(chosen); }, options))
    add(name, *value);
  if (const auto* const sgd = std::get_if<Sgd>(&options))
    all.emplace_back("nesterov", sgd->nesterov);
  return all;
}

void check_options(const OptimizerOptions& options) {
  std::visit([](const auto& chosen) { check(chosen); }, options);
}

void check_runs_on_gpu(const OptimizerOptions& options) {
  if (std::holds_alternative<CustomOptimizerPointer>(options))
    throw Error(ErrorCategory::input, name_of(options), "expected a built-in optimizer on a GPU",
                "got a CustomOptimizer, which runs on the CPU only");
}

std::vector<std::string> slot_names(const OptimizerOptions& options) {
  if (const auto* const custom = std::get_if<CustomOptimizerPointer>(&options))
    return *custom ? (*custom)->slots() : std::vector<std::string>();
  return std::visit(
      [](const auto& update) {
        return std::vector<std::string>(update.kSlots.begin(), update.kSlots.end());
      },
      update_of(options, {}));
}

bool is_layer_wise(const OptimizerOptions& options) {
  if (std::holds_alternative<CustomOptimizerPointer>(options)) return false;
  return std::visit([]<typename Update>(const Update&) { return LayerWise<Update>; },
                    update_of(options, {}));
}

}  // namespace lockstep::inline v0::model
