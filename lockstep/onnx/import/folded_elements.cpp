// Functions of elements of constants: activations, arithmetic, comparisons, types.
#include <algorithm>
#include <array>
#include <cmath>
#include <compare>
#include <limits>
#include <numbers>
#include <type_traits>

#include "lockstep/onnx/element_operators.h"
#include "lockstep/onnx/import/folding.h"

namespace lockstep::inline v0::onnx {
namespace {

using model::Shape;
using Integer = std::optional<std::int64_t>;

constexpr std::int64_t kLargest = std::int64_t{1} << 31;  // no product of two overflows

// ---- Functions of one number

double gelu_by_erf(double x) { return x * 0.5 * (1 + std::erf(x / std::numbers::sqrt2)); }
double gelu_by_tanh(double x) {
  constexpr double kScale = 0.7978845608028654;  // sqrt(2 / pi)
  return x * 0.5 * (1 + std::tanh(kScale * (x + 0.044715 * x * x * x)));
}

// ---- Functions of two numbers

struct Binary {
  std::string_view type;
  BinaryFunction float_function;
  std::int64_t (*integer_operation)(std::int64_t, std::int64_t);  // null: floats only
};
constexpr std::array<Binary, 9> kBinaries{{
    {"Add", [](double a, double b) { return a + b; },
     [](std::int64_t a, std::int64_t b) { return a + b; }},
    {"Div", [](double a, double b) { return a / b; },
     [](std::int64_t a, std::int64_t b) { return a / b; }},
    {"Max", [](double a, double b) { return std::isnan(a) || a > b ? a : b; },
     [](std::int64_t a, std::int64_t b) { return std::max(a, b); }},
    {"Min", [](double a, double b) { return std::isnan(a) || a < b ? a : b; },
     [](std::int64_t a, std::int64_t b) { return std::min(a, b); }},
    {"Mod", [](double a, double b) { return std::fmod(a, b); },
     [](std::int64_t a, std::int64_t b) { return a % b; }},
    {"Mul", [](double a, double b) { return a * b; },
     [](std::int64_t a, std::int64_t b) { return a * b; }},
    {"Pow", [](double a, double b) { return std::pow(a, b); }, nullptr},
    {"Sub", [](double a, double b) { return a - b; },
     [](std::int64_t a, std::int64_t b) { return a - b; }},
    {"Sum", [](double a, double b) { return a + b; }, nullptr},
}};

const Binary* binary_of(std::string_view type) {
  const auto found = std::ranges::find(kBinaries, type, &Binary::type);
  return found == kBinaries.end() ? nullptr : &*found;
}

/// function(element of a, element of b) for all elements, after broadcasting both. Elements are of
/// the type Element, results optional.
template <typename Element, typename Function>
Folded combined(const Folding& f, const Constant& a, const Constant& b, const Function& function) {
  const auto shape = common_shape(a, b);
  if (!shape) return std::nullopt;
  const Folded left = expanded(f, a, *shape);
  const Folded right = expanded(f, b, *shape);
  if (!left || !right) return std::nullopt;
  const auto& left_values = *std::get<Constant::Elements<Element>>(left->values);
  const auto& right_values = *std::get<Constant::Elements<Element>>(right->values);
  using Result = typename std::invoke_result_t<Function, Element, Element>::value_type;
  f.spend(left_values.size());
  std::vector<Result> values;
  for (std::size_t i = 0; i < left_values.size(); ++i) {
    const auto value = function(left_values[i], right_values[i]);
    if (!value) return std::nullopt;
    values.push_back(*value);
  }
  return make_constant(*shape, std::move(values));
}

/// combined() of constants that both have floats, or integers.
template <typename FloatFunction, typename IntegerFunction>
Folded combined(const Folding& f, const Constant& a, const Constant& b,
                const FloatFunction& float_function, const IntegerFunction& integer_operation) {
  if (a.values.index() != b.values.index()) return std::nullopt;
  return a.floats() != nullptr ? combined<float>(f, a, b, float_function)
                               : combined<std::int64_t>(f, a, b, integer_operation);
}

/// The function `type` of two or more inputs, from left to right.
Folded joined(const Folding& f, std::string_view type) {
  const Binary* const binary = binary_of(type);
  if (f.inputs.empty() || binary == nullptr) return std::nullopt;
  Folded result = f.input(0) == nullptr ? std::nullopt : Folded(*f.input(0));
  for (std::size_t k = 1; k < f.inputs.size() && result; ++k)
    result = f.input(k) == nullptr ? std::nullopt
                                   : combined(
                                         f, *result, *f.input(k),
                                         [&](float a, float b) -> std::optional<float> {
                                           return static_cast<float>(binary->float_function(
                                               static_cast<double>(a), static_cast<double>(b)));
                                         },
                                         [&](std::int64_t a, std::int64_t b) {
                                           return integer_function(binary->type, a, b);
                                         });
  return result;
}

Folded arithmetic(const Folding& f) { return joined(f, f.node.type); }

/// Powers of integers are computed in double, and rejected if inexact.
Folded power(const Folding& f) {
  if (f.inputs.size() != 2 || f.input(0) == nullptr || f.input(1) == nullptr) return std::nullopt;
  if (f.input(0)->floats() != nullptr && f.input(1)->integers() != nullptr) {
    if (std::ranges::find(*f.input(1)->integers(), kSampleCount) != f.input(1)->integers()->end())
      return std::nullopt;
    std::vector<float> exponents(f.input(1)->integers()->begin(), f.input(1)->integers()->end());
    const Constant exponent = make_constant(f.input(1)->shape, std::move(exponents));
    const std::array inputs{f.input(0), &exponent};
    return arithmetic({f.node, f.options, inputs, f.output, f.opset, f.where, f.remaining});
  }
  return combined(
      f, *f.input(0), *f.input(1),
      [](float a, float b) -> std::optional<float> {
        return static_cast<float>(std::pow(static_cast<double>(a), static_cast<double>(b)));
      },
      [](std::int64_t a, std::int64_t b) -> Integer {
        const double value = std::pow(static_cast<double>(a), static_cast<double>(b));
        if (!(std::abs(value) < 1e15) || b < 0) return std::nullopt;
        return static_cast<std::int64_t>(value);
      });
}

/// The remainder has the sign of the divisor, with "fmod" that of the dividend.
Folded remainder(const Folding& f) {
  if (f.options.integer("fmod", 0) != 0) return arithmetic(f);
  if (f.inputs.size() != 2 || f.input(0) == nullptr || f.input(1) == nullptr) return std::nullopt;
  const auto floored = [](auto rest, auto divisor) {
    return rest != 0 && (rest < 0) != (divisor < 0) ? rest + divisor : rest;
  };
  return combined(
      f, *f.input(0), *f.input(1),
      [&](float a, float b) -> std::optional<float> { return floored(std::fmod(a, b), b); },
      [&](std::int64_t a, std::int64_t b) -> Integer {
        const Integer rest = integer_function("Mod", a, b);
        return rest ? Integer(floored(*rest, b)) : std::nullopt;
      });
}

Folded mean(const Folding& f) {
  const Folded sum = joined(f, "Add");
  if (!sum || sum->floats() == nullptr) return std::nullopt;
  std::vector<float> values = *sum->floats();
  for (float& value : values) value /= static_cast<float>(f.inputs.size());
  return make_constant(sum->shape, std::move(values));
}

Folded clip(const Folding& f) {
  Folded result = f.input(0) == nullptr ? std::nullopt : Folded(*f.input(0));
  for (const std::size_t k : {std::size_t{1}, std::size_t{2}}) {
    if (f.input(k) == nullptr || !result) continue;
    const Binary& limit = *binary_of(k == 1 ? "Max" : "Min");
    result = combined(
        f, *result, *f.input(k),
        [&](float a, float b) -> std::optional<float> {
          return static_cast<float>(
              limit.float_function(static_cast<double>(a), static_cast<double>(b)));
        },
        [&](std::int64_t a, std::int64_t b) { return integer_function(limit.type, a, b); });
  }
  return result;
}

// ---- Comparisons and choices

/// Compares two integers; nullopt if the result depends on the number of samples, which is above 0.
std::optional<std::partial_ordering> order_of(std::int64_t a, std::int64_t b) {
  const bool a_is_free = times_in(a) > 0;
  const bool b_is_free = times_in(b) > 0;
  if (a_is_free == b_is_free) return std::partial_ordering(a <=> b);
  if (a_is_free && b <= 0) return std::partial_ordering::greater;
  if (b_is_free && a <= 0) return std::partial_ordering::less;
  return std::nullopt;
}

struct Comparison {
  std::string_view type;
  bool (*holds)(std::partial_ordering);
};
constexpr std::array<Comparison, 5> kComparisons{{
    {"Equal", [](std::partial_ordering o) { return o == 0; }},
    {"Greater", [](std::partial_ordering o) { return o > 0; }},
    {"GreaterOrEqual", [](std::partial_ordering o) { return o >= 0; }},
    {"Less", [](std::partial_ordering o) { return o < 0; }},
    {"LessOrEqual", [](std::partial_ordering o) { return o <= 0; }},
}};

Folded comparison(const Folding& f) {
  if (f.inputs.size() != 2 || f.input(0) == nullptr || f.input(1) == nullptr) return std::nullopt;
  const auto* const row = std::ranges::find(kComparisons, f.node.type, &Comparison::type);
  return combined(
      f, *f.input(0), *f.input(1),
      [&](float a, float b) { return Integer(row->holds(a <=> b) ? 1 : 0); },
      [&](std::int64_t a, std::int64_t b) -> Integer {
        const auto order = order_of(a, b);
        return order ? Integer(row->holds(*order) ? 1 : 0) : std::nullopt;
      });
}

Folded logic(const Folding& f) {
  const Constant* const a = f.input(0);
  const Constant* const b = f.node.type == "Not" ? a : f.input(1);
  if (a == nullptr || b == nullptr || a->integers() == nullptr || b->integers() == nullptr)
    return std::nullopt;
  const std::string& type = f.node.type;
  return combined<std::int64_t>(f, *a, *b, [&](std::int64_t x, std::int64_t y) {
    const bool result = type == "And"   ? x != 0 && y != 0
                        : type == "Or"  ? x != 0 || y != 0
                        : type == "Xor" ? (x != 0) != (y != 0)
                                        : x == 0;
    return Integer(result ? 1 : 0);
  });
}

Folded where(const Folding& f) {
  const Constant* const condition = f.input(0);
  if (condition == nullptr || condition->integers() == nullptr || f.input(1) == nullptr ||
      f.input(2) == nullptr || f.input(1)->values.index() != f.input(2)->values.index())
    return std::nullopt;
  auto shape = common_shape(*f.input(1), *f.input(2));
  if (shape) shape = common_shape(reshaped(*f.input(1), *shape), *condition);
  if (!shape) return std::nullopt;
  const Folded chosen = expanded(f, *condition, *shape);
  const Folded a = expanded(f, *f.input(1), *shape);
  const Folded b = expanded(f, *f.input(2), *shape);
  if (!chosen || !a || !b) return std::nullopt;
  return visit_values(*a, [&](const auto& a_values) {
    using Values = std::remove_cvref_t<decltype(a_values)>;
    const Values& b_values = *std::get<std::shared_ptr<const Values>>(b->values);
    f.spend(a_values.size());
    Values values;
    for (std::size_t i = 0; i < a_values.size(); ++i)
      values.push_back((*chosen->integers())[i] != 0 ? a_values[i] : b_values[i]);
    return Folded(make_constant(*shape, std::move(values)));
  });
}

// ---- Types

struct Range {
  std::int64_t least, most;
};

/// The range of an integer type; nullopt for other types.
std::optional<Range> range_of(TensorType type) {
  if (type == TensorType::int8) return Range{-128, 127};
  if (type == TensorType::uint8) return Range{0, 255};
  if (type == TensorType::int32) return Range{-kLargest, kLargest - 1};
  if (type == TensorType::int64)
    return Range{kSampleCount + 1, std::numeric_limits<std::int64_t>::max()};
  return std::nullopt;
}

Folded cast(const Folding& f) {
  const Constant* const input = f.input(0);
  if (input == nullptr) return std::nullopt;
  const auto type = static_cast<TensorType>(f.options.integer("to", 1));
  const bool to_floats = type == TensorType::float32 || type == TensorType::float64 ||
                         type == TensorType::float16 || type == TensorType::bfloat16;
  if (to_floats && input->floats() != nullptr) return *input;
  const bool to_bool = type == TensorType::boolean;
  const auto range = range_of(type);
  if (!to_floats && !to_bool && !range) return std::nullopt;
  return visit_values(*input, [&](const auto& values) -> Folded {
    f.spend(values.size());
    std::vector<float> floats;
    std::vector<std::int64_t> integers;
    for (const auto value : values) {
      constexpr bool kIsFloat = std::is_same_v<std::remove_cvref_t<decltype(value)>, float>;
      if (to_bool) {
        integers.push_back(value != 0 ? 1 : 0);
        continue;
      }
      if constexpr (kIsFloat) {
        constexpr float kMax = 1e15f;
        if (!(value > -kMax && value < kMax)) return std::nullopt;
      } else if (times_in(value) > 0) {
        if (to_floats) return std::nullopt;
        integers.push_back(value);
        continue;
      }
      if (to_floats) {
        floats.push_back(static_cast<float>(value));
        continue;
      }
      integers.push_back(static_cast<std::int64_t>(value));
      if (integers.back() < range->least || integers.back() > range->most) return std::nullopt;
    }
    return to_floats ? make_constant(input->shape, std::move(floats))
                     : make_constant(input->shape, std::move(integers));
  });
}

/// (x - zero point) * scale, with one scale or one per index of an axis.
Folded dequantize(const Folding& f) {
  const Constant* const input = f.input(0);
  const Constant* const scale = f.input(1);
  const auto* const zeros = f.integers(2);
  if (input == nullptr || input->integers() == nullptr || input->has_batch() || scale == nullptr ||
      scale->floats() == nullptr || (f.input(2) != nullptr) != (zeros != nullptr) ||
      f.options.integer("block_size", 0) != 0)
    return std::nullopt;
  const std::vector<float>& scales = *scale->floats();
  std::size_t inner = 1;  // consecutive elements with one scale
  if (scales.size() != 1) {
    const auto axis = axis_of(f.options.integer("axis", 1), input->shape.size());
    if (!axis || scale->shape.size() != 1 || scale->shape.front() != input->shape[*axis])
      return std::nullopt;
    inner = strides_of(input->shape)[*axis];
  }
  if (scales.empty() || (zeros != nullptr && zeros->size() != scales.size())) return std::nullopt;
  f.spend(input->shape);
  std::vector<float> values;
  values.reserve(input->integers()->size());
  for (const std::int64_t integer : *input->integers()) {
    const std::size_t channel = values.size() / inner % scales.size();
    const std::int64_t zero = zeros == nullptr ? 0 : (*zeros)[channel];
    constexpr std::int64_t kMax = std::int64_t{1}
                                  << 32;  // above the ranges of the types that ONNX allows
    if (integer < -kMax || integer > kMax || zero < -kMax || zero > kMax) return std::nullopt;
    values.push_back(static_cast<float>(integer - zero) * scales[channel]);
  }
  return make_constant(input->shape, std::move(values));
}

/// In training, elements are dropped at random.
Folded dropout(const Folding& f) {
  const Constant* const training = f.input(2);
  if (f.input(0) == nullptr || (training != nullptr && !training->is_zero())) return std::nullopt;
  return *f.input(0);
}

Folded identity(const Folding& f) {
  return f.input(0) == nullptr ? std::nullopt : Folded(*f.input(0));
}

constexpr FoldRow kElementRows[] = {
    {"Add", arithmetic},
    {"And", logic},
    {"Cast", cast},
    {"Clip", clip},
    {"DequantizeLinear", dequantize},
    {"Div", arithmetic},
    {"Dropout", dropout},
    {"Equal", comparison},
    {"Greater", comparison},
    {"GreaterOrEqual", comparison},
    {"Identity", identity},
    {"Less", comparison},
    {"LessOrEqual", comparison},
    {"Max", arithmetic},
    {"Mean", mean},
    {"Min", arithmetic},
    {"Mod", remainder},
    {"Mul", arithmetic},
    {"Not", logic},
    {"Or", logic},
    {"Pow", power},
    {"Sub", arithmetic},
    {"Sum", arithmetic},
    {"Where", where},
    {"Xor", logic},
};

}  // namespace

Folded folded_element(const Folding& f) {
  const Constant* const input = f.input(0);
  const auto function = element_function(f.node);
  if (input == nullptr || function == nullptr) return std::nullopt;
  f.spend(visit_values(*input, [](const auto& values) { return values.size(); }));
  if (const auto* const floats = input->floats()) {
    std::vector<float> values;
    for (const float value : *floats)
      values.push_back(static_cast<float>(function(static_cast<double>(value))));
    return make_constant(input->shape, std::move(values));
  }
  // Only these accept integers, and they are exact in double.
  constexpr std::array<std::string_view, 4> kIntegerTypes{"Abs", "Neg", "Relu", "Sign"};
  if (std::ranges::find(kIntegerTypes, f.node.type) == kIntegerTypes.end()) return std::nullopt;
  std::vector<std::int64_t> values;
  for (const std::int64_t value : *input->integers()) {
    if (std::abs(static_cast<double>(value)) > 1e15) return std::nullopt;
    values.push_back(static_cast<std::int64_t>(function(static_cast<double>(value))));
  }
  return make_constant(input->shape, std::move(values));
}

std::function<double(double)> element_function(const Node& node) {
  const Attributes options(node);
  if (node.type == "Gelu")
    return options.text("approximate", "none") == "tanh" ? gelu_by_tanh : gelu_by_erf;
  const auto found = std::ranges::find(element_operators(), node.type, &ElementOperator::type);
  if (found == element_operators().end()) return nullptr;
  std::array<double, 2> numbers{};
  for (std::size_t k = 0; k < numbers.size(); ++k)
    if (const ElementOperator::Number& number = found->numbers[k]; number.attribute != nullptr)
      numbers[k] = static_cast<double>(options.number(number.attribute, number.otherwise));
  return [function = found->function, numbers](double x) {
    return function(x, numbers[0], numbers[1]);
  };
}

BinaryFunction binary_function(std::string_view type) {
  const Binary* const found = binary_of(type);
  return found == nullptr ? nullptr : found->float_function;
}

BinaryFunction comparison_function(std::string_view type) {
  if (type == "Equal") return [](double a, double b) { return a == b ? 1.0 : 0.0; };
  if (type == "Greater") return [](double a, double b) { return a > b ? 1.0 : 0.0; };
  if (type == "GreaterOrEqual") return [](double a, double b) { return a >= b ? 1.0 : 0.0; };
  if (type == "Less") return [](double a, double b) { return a < b ? 1.0 : 0.0; };
  if (type == "LessOrEqual") return [](double a, double b) { return a <= b ? 1.0 : 0.0; };
  return nullptr;
}

Integer integer_function(std::string_view type, std::int64_t a, std::int64_t b) {
  const Binary* const binary = binary_of(type);
  if (binary == nullptr || binary->integer_operation == nullptr) return std::nullopt;
  if (a == b && (type == "Max" || type == "Min")) return a;
  // A number of times the samples is only multiplied and divided, or compared with 1.
  if (times_in(b) > 0 && type != "Div") std::swap(a, b);
  if (const std::int64_t times = times_in(a); times > 0 && b > 0 && b <= kLargest) {
    if (type == "Mul" && times <= kLargest / b) return times_samples(times * b);
    if (type == "Div" && times % b == 0) return times_samples(times / b);
    if (b == 1 && (type == "Max" || type == "Min")) return type == "Max" ? a : b;
    return std::nullopt;
  }
  if (std::max(a, b) > kLargest || std::min(a, b) < -kLargest) return std::nullopt;
  if (b == 0 && (type == "Div" || type == "Mod")) return std::nullopt;
  return binary->integer_operation(a, b);
}

std::span<const FoldRow> folded_elements() { return kElementRows; }

}  // namespace lockstep::inline v0::onnx
