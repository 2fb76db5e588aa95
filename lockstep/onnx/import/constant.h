// Arrays of an ONNX graph that do not depend on its inputs, and the options of a node.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/model/tensor/tensor.h"
#include "lockstep/onnx/model.h"

namespace lockstep::inline v0::onnx {

/// The number of samples, as an extent or an element of a shape.
inline constexpr std::int64_t kSampleCount = std::numeric_limits<std::int64_t>::min();

/// `count` times the number of samples, as an element of a shape; above 0 and at most 2^31.
constexpr std::int64_t times_samples(std::int64_t count) { return kSampleCount + (count - 1); }
/// Such a number of times; 0 for an integer that does not depend on the number of samples.
constexpr std::int64_t times_in(std::int64_t value) {
  return value < kSampleCount + (std::int64_t{1} << 31) ? value - kSampleCount + 1 : 0;
}

/// An array that is known before the graph runs. Copies share the elements.
struct Constant {
  template <typename Element>
  using Elements = std::shared_ptr<const std::vector<Element>>;

  /// May contain kSampleCount. `values` then has one element, which all elements of the array
  /// equal, and {kSampleCount} stands for any such shape.
  model::Shape shape;
  /// Floating-point types as float32, all others as int64; bool as 0 and 1.
  std::variant<Elements<float>, Elements<std::int64_t>> values;

  /// Whether an extent is the number of samples.
  /// Whether it is an array of floating-point numbers of the file, or computed from one, which a
  /// layer may train.
  bool is_weight = false;

  bool has_batch() const;
  bool shape_is_known() const { return shape != model::Shape{kSampleCount}; }
  /// The elements if they are floats, else null.
  const std::vector<float>* floats() const;
  /// The elements if they are integers, else null.
  const std::vector<std::int64_t>* integers() const;
  /// The value of an array of one element.
  std::optional<double> scalar() const;
  /// Whether all elements are 0.
  bool is_zero() const;
};

template <typename Element>
Constant make_constant(model::Shape shape, std::vector<Element> values) {
  return {.shape = std::move(shape),
          .values = std::make_shared<const std::vector<Element>>(std::move(values))};
}

/// Calls function(values) with the vector of elements.
template <typename Function>
auto visit_values(const Constant& constant, const Function& function) {
  return std::visit([&](const auto& values) { return function(*values); }, constant.values);
}

/// The elements of `tensor`.
Constant constant_of(const Tensor& tensor);
/// A vector of integers, such as a shape.
Constant constant_of(std::vector<std::int64_t> values);

/// Options of a node by name.
class Attributes {
 public:
  /// Refers to the node.
  explicit Attributes(const Node& node) : node_(&node) {}

  std::int64_t integer(std::string_view name, std::int64_t fallback) const;
  float number(std::string_view name, float fallback) const;
  std::string text(std::string_view name, std::string_view fallback) const;
  std::optional<std::vector<std::int64_t>> integers(std::string_view name) const;
  std::vector<float> numbers(std::string_view name) const;      ///< empty if there are none
  std::vector<std::string> texts(std::string_view name) const;  ///< empty if there are none
  const Tensor* tensor(std::string_view name) const;            ///< null if there is none
  bool has(std::string_view name) const { return find(name) != nullptr; }

 private:
  const Attribute* find(std::string_view name) const;

  const Node* node_;
};

/// The index of `axis`, which counts from the end if negative; nullopt if it is not one of `rank`
/// axes.
std::optional<std::size_t> axis_of(std::int64_t axis, std::size_t rank);

}  // namespace lockstep::inline v0::onnx
