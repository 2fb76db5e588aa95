#include "lockstep/model/loss/loss_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <type_traits>

#include "lockstep/base/enum_names.h"
#include "lockstep/base/error.h"
#include "lockstep/base/fields/spec.h"

namespace lockstep::inline v0::model {
namespace {

using LossParameters = std::vector<std::pair<std::string_view, float*>>;

template <typename T>
constexpr bool kIsCustom = std::is_same_v<T, CustomLossPointer>;

template <typename T>
LossParameters parameters_of(T& loss) {
  LossParameters all;
  if constexpr (requires { loss.label_smoothing; })
    all.emplace_back("label_smoothing", &loss.label_smoothing);
  if constexpr (requires { loss.delta; }) all.emplace_back("delta", &loss.delta);
  return all;
}

/// The built-in losses with their defaults.
template <typename... Losses>
std::vector<Loss> named_losses(std::variant<Losses...>* /*type*/) {
  std::vector<Loss> all;
  const auto add = [&]<typename T>(T loss) {
    if constexpr (!kIsCustom<T>) all.emplace_back(loss);
  };
  (add(Losses()), ...);
  return all;
}

std::vector<Loss> all_losses() { return named_losses(static_cast<Loss*>(nullptr)); }

std::string_view short_name_of(const Loss& loss) {
  return std::visit(
      []<typename T>(const T&) -> std::string_view {
        if constexpr (kIsCustom<T>)
          return "";
        else
          return T::kShortName;
      },
      loss);
}

/// The short name, or else the name.
std::string usual_name_of(const Loss& loss) {
  const std::string_view name = short_name_of(loss);
  return name.empty() ? name_of(loss) : std::string(name);
}

Loss find_loss(std::string_view name) {
  std::vector<std::string_view> accepted = loss_names();
  const std::size_t listed = accepted.size();
  for (const Loss& loss : all_losses()) {
    if (name == name_of(loss) || (!name.empty() && name == short_name_of(loss))) return loss;
    if (!short_name_of(loss).empty()) accepted.push_back(short_name_of(loss));
  }
  refuse_name("loss", name, std::span(accepted).first(listed), accepted);
}

}  // namespace

std::vector<std::string_view> loss_names() {
  std::vector<std::string_view> names;
  for (const Loss& loss : all_losses())
    std::visit(
        [&]<typename T>(const T&) {
          if constexpr (!kIsCustom<T>) names.push_back(T::kName);
        },
        loss);
  return names;
}

Loss parse_loss(std::string_view text) {
  Spec spec = Spec::parse("loss", text);
  Loss loss = find_loss(spec.head());
  for (const auto& [name, value] : loss_parameters(loss)) spec.read(name, *value);
  spec.finish();
  check_options(loss);
  return loss;
}

std::string name_of(const Loss& loss) {
  return std::visit(
      []<typename T>(const T& chosen) -> std::string {
        if constexpr (kIsCustom<T>)
          return chosen ? chosen->name() : "custom_loss";
        else
          return std::string(T::kName);
      },
      loss);
}

std::string to_string(const Loss& loss) {
  const std::string text = usual_name_of(loss);
  std::vector<std::string> values;
  std::visit(
      [&]<typename T>(T chosen) {
        T usual{};
        const LossParameters defaults = parameters_of(usual);
        const LossParameters all = parameters_of(chosen);
        for (std::size_t i = 0; i < all.size(); ++i)
          if (*all[i].second != *defaults[i].second)
            values.push_back(fmt::format("{}={}", all[i].first, *all[i].second));
      },
      loss);
  return values.empty() ? text : fmt::format("{}:{}", text, fmt::join(values, ","));
}

std::vector<std::pair<std::string_view, float*>> loss_parameters(Loss& loss) {
  return std::visit([](auto& chosen) { return parameters_of(chosen); }, loss);
}

void check_options(const Loss& loss) {
  if (const auto* const custom = std::get_if<CustomLossPointer>(&loss); custom && !*custom)
    throw Error(ErrorCategory::input, "loss", "expected a loss", "got a null pointer");
  const std::string_view activation = activation_of(loss);
  if (!activation.empty() && activation != "softmax" && activation != "sigmoid")
    throw Error(ErrorCategory::input, name_of(loss), "expected softmax, sigmoid or no activation",
                fmt::format("got \"{}\"", activation));
  Loss copy = loss;
  const std::string where = usual_name_of(loss);
  for (const auto& [name, value] : loss_parameters(copy)) {
    if (name == "label_smoothing" && !(*value >= 0 && *value < 1))
      throw Error(ErrorCategory::input, where, "expected label smoothing from 0 to below 1",
                  fmt::format("got {}", *value));
    if (name == "delta" && !(*value > 0 && std::isfinite(*value)))
      throw Error(ErrorCategory::input, where, "expected delta above 0",
                  fmt::format("got {}", *value));
  }
}

std::int64_t row_width(const Loss& loss, std::span<const std::int64_t> shape) {
  if (std::holds_alternative<SparseCategoricalCrossentropy>(loss) && !shape.empty())
    return shape.back();
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies());
}

std::int64_t class_count(const Loss& loss, std::int64_t outputs) {
  const std::string_view activation = activation_of(loss);
  if (activation == "softmax") return outputs;
  return activation == "sigmoid" && outputs == 1 ? 2 : 0;
}

std::string_view activation_of(const Loss& loss) {
  return std::visit(
      []<typename T>([[maybe_unused]] const T& chosen) -> std::string_view {
        if constexpr (kIsCustom<T>)
          return chosen ? chosen->activation() : "";
        else
          return T::kActivation;
      },
      loss);
}

void check_runs_on_gpu(const Loss& loss) {
  if (std::holds_alternative<CustomLossPointer>(loss))
    throw Error(ErrorCategory::input, name_of(loss), "expected a built-in loss on a GPU",
                "got a CustomLoss, which runs on the CPU only");
}

}  // namespace lockstep::inline v0::model
