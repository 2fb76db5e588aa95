// The one evaluator of operators whose inputs are constants. Private to the module.
//
// ConstantFolder::fold() finds the row of the operator in one of three tables, each in its own
// file, and calls its function with a Folding: the node, its inputs and the remaining budget of
// elements. A function returns nullopt for options and shapes that it does not support; the
// importer then rejects the node. Elements are computed in double and rounded to float32 once,
// integers in int64. The number of samples, kSampleCount, may be an element of a shape; results
// that depend on its value are not folded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/onnx/import/constant.h"

namespace lockstep::inline v0::onnx {

/// Computes nodes whose inputs are constants.
class ConstantFolder {
 public:
  /// `elements`: maximum number of elements to create in total, so that no graph exhausts the
  /// memory.
  explicit ConstantFolder(std::size_t elements) : remaining_(elements) {}

  /// Output `output` of `node` with the inputs `inputs` (null: omitted); nullopt for operators and
  /// options that are not folded. Throws Error (input) of `where` above the limit of elements.
  std::optional<Constant> fold(const Node& node, std::span<const Constant* const> inputs,
                               std::size_t output, std::int64_t opset, std::string_view where);
  /// Whether there is a function for the operator.
  static bool supports(const Node& node);

 private:
  std::size_t remaining_;
};

/// One output of a node whose inputs are constants.
struct Folding {
  const Node& node;
  Attributes options;
  std::span<const Constant* const> inputs;
  std::size_t output;
  std::int64_t opset;
  std::string_view where;
  std::size_t& remaining;  ///< remaining budget of elements

  /// Null if it is omitted.
  const Constant* input(std::size_t index) const {
    return index < inputs.size() ? inputs[index] : nullptr;
  }
  /// Null if it is omitted, or has no integers.
  const std::vector<std::int64_t>* integers(std::size_t index) const {
    const Constant* const found = input(index);
    return found == nullptr || found->has_batch() ? nullptr : found->integers();
  }
  /// The integers of an input, or of an attribute (in earlier opsets); nullopt if there are
  /// neither.
  std::optional<std::vector<std::int64_t>> integers(std::size_t index,
                                                    const char* attribute) const {
    if (const auto* const values = integers(index)) return *values;
    return options.integers(attribute);
  }
  /// Spends `elements` of the budget. Throws Error (input) if it is exceeded.
  void spend(std::size_t elements) const;
  /// Spends and returns the number of elements of `shape`.
  std::size_t spend(const model::Shape& shape) const;
};

using Folded = std::optional<Constant>;

using Fold = Folded(const Folding&);
Fold folded_element;  ///< folded_elements.cpp: functions of one element

/// A row of a table: another operator.
struct FoldRow {
  std::string_view type;
  Fold* fold;
};
std::span<const FoldRow> folded_elements();  ///< folded_elements.cpp: functions of several elements
std::span<const FoldRow> folded_shapes();    ///< folded_shapes.cpp: creating and moving elements
std::span<const FoldRow> folded_reductions();  ///< folded_reductions.cpp: sums and products

/// The function of one number that `node` computes: Relu, LeakyRelu, Sigmoid, …; null for other
/// operators.
std::function<double(double)> element_function(const Node& node);
/// The function of two numbers: Add, Sub, Mul, Div, Pow, …; null for other operators.
using BinaryFunction = double (*)(double, double);
BinaryFunction binary_function(std::string_view type);
/// Whether the operator compares two numbers, and the comparison as 0 or 1; null for others.
BinaryFunction comparison_function(std::string_view type);
/// The function of two integers, such as extents; nullopt if it depends on the number of samples or
/// overflows.
std::optional<std::int64_t> integer_function(std::string_view type, std::int64_t a, std::int64_t b);

/// The extents of `shape` that a Shape node reads.
model::Shape shape_between(const model::Shape& shape, const Node& node);
/// The sizes of the parts of a Split of `extent`: `requested`, or else equal ones; nullopt if they
/// do not fit.
std::optional<model::Shape> split_sizes(const std::optional<std::vector<std::int64_t>>& requested,
                                        std::int64_t extent, std::size_t outputs);

// Helpers of the functions.

inline Constant reshaped(Constant constant, model::Shape shape) {
  constant.shape = std::move(shape);
  return constant;
}

/// The number of elements of a shape without kSampleCount.
std::size_t size_of(const model::Shape& shape);
/// Elements between neighbors along each axis.
std::vector<std::size_t> strides_of(const model::Shape& shape);
/// The offsets in an array, from `begin` on with `steps` along each axis, of the elements of a
/// result of `shape`.
std::vector<std::size_t> element_offsets(const model::Shape& shape, std::size_t begin,
                                         const std::vector<std::ptrdiff_t>& steps);
/// `constant` with the elements at `indices`.
Constant gathered(const Constant& constant, model::Shape shape,
                  const std::vector<std::size_t>& indices);
/// The shape to which both broadcast; nullopt if they do not fit.
std::optional<model::Shape> common_shape(const Constant& a, const Constant& b);
/// The value of all elements, as an array without axes; nullopt if they differ.
Folded equal_element(const Folding& f, const Constant& constant);
/// `constant` broadcast to `shape`; nullopt if the shape has the number of samples and the elements
/// are not all equal.
Folded expanded(const Folding& f, const Constant& constant, const model::Shape& shape);

}  // namespace lockstep::inline v0::onnx
