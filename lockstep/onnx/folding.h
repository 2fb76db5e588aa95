// The one evaluator of operators whose inputs are constants. Private to the module.
//
// ConstantFolder::fold() finds the row of the operator in one of three tables, each in a file of
// its own, and calls its function with a Folding: the node, its inputs and the elements that may
// still be made. A function returns nullopt for options and shapes that it does not compute; the
// importer then refuses the node. Elements are computed in double and rounded to float32 once,
// integers in int64. The number of samples, kSampleCount, may be an element of a shape: what
// depends on how large it is, is not computed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/onnx/constant.h"

namespace lockstep::onnx {

/// Computes nodes whose inputs are constants.
class ConstantFolder {
 public:
  /// Folding may make `elements` elements in all, so that no graph exhausts the memory.
  explicit ConstantFolder(std::size_t elements) : left_(elements) {}

  /// Output `output` of `node`, whose inputs are `inputs` (null: left out); nullopt for operators
  /// and options that are not folded. Throws Error (input) of `where` above the limit of elements.
  std::optional<Constant> fold(const Node& node, std::span<const Constant* const> inputs,
                               std::size_t output, std::int64_t opset, std::string_view where);
  /// Whether the operator is folded at all.
  static bool knows(const Node& node);

 private:
  std::size_t left_;
};

/// One output of a node whose inputs are constants.
struct Folding {
  const Node& node;
  Attributes options;
  std::span<const Constant* const> inputs;
  std::size_t output;
  std::int64_t opset;
  std::string_view where;
  std::size_t& left;  ///< elements that may still be made

  /// Null if it is left out.
  const Constant* input(std::size_t index) const {
    return index < inputs.size() ? inputs[index] : nullptr;
  }
  /// Null if it is left out, or has no integers.
  const std::vector<std::int64_t>* integers(std::size_t index) const {
    const Constant* const found = input(index);
    return found == nullptr || found->has_batch() ? nullptr : found->integers();
  }
  /// Those of an input, or of an attribute as earlier versions have; nullopt if there are neither.
  std::optional<std::vector<std::int64_t>> integers(std::size_t index,
                                                    const char* attribute) const {
    if (const auto* const given = integers(index)) return *given;
    return options.integers(attribute);
  }
  /// Throws Error (input) unless `elements` more may be made.
  void spend(std::size_t elements) const;
  /// The number of elements of `shape`, which are spent.
  std::size_t spend(const model::Shape& shape) const;
};

using Folded = std::optional<Constant>;

/// A row of a table: an operator.
struct FoldRow {
  std::string_view type;
  Folded (*fold)(const Folding&);
};
std::span<const FoldRow> folded_elements();    ///< folded_elements.cpp: functions of elements
std::span<const FoldRow> folded_shapes();      ///< folded_shapes.cpp: what makes and moves elements
std::span<const FoldRow> folded_reductions();  ///< folded_reductions.cpp: sums and products

/// The function of one number that `node` is, with its options: Relu, LeakyRelu, Sigmoid and the
/// like; null for other operators.
std::function<double(double)> element_function(const Node& node);
/// That of two numbers: Add, Sub, Mul, Div, Pow and the like; null for other operators.
using BinaryFunction = double (*)(double, double);
BinaryFunction binary_function(std::string_view type);
/// The same of two integers, such as extents; nullopt for what depends on the number of samples,
/// and for what is too large.
std::optional<std::int64_t> integer_function(std::string_view type, std::int64_t a, std::int64_t b);

/// The extents of `shape` that a Shape node reads.
model::Shape shape_between(const model::Shape& shape, const Node& node);
/// The sizes of the parts of a Split of `extent`, which `given` lists or which are equal; nullopt
/// if they do not fit.
std::optional<model::Shape> split_sizes(const std::optional<std::vector<std::int64_t>>& given,
                                        std::int64_t extent, std::size_t outputs);

// What the functions share.

inline Constant reshaped(Constant constant, model::Shape shape) {
  constant.shape = std::move(shape);
  return constant;
}

/// The number of elements, of a shape without the number of samples.
std::size_t size_of(const model::Shape& shape);
/// Elements between neighbors along each axis.
std::vector<std::size_t> strides_of(const model::Shape& shape);
/// The places in an array, of which those at `steps` along each axis of `shape` are read, from
/// `begin` on.
std::vector<std::size_t> places(const model::Shape& shape, std::size_t begin,
                                const std::vector<std::ptrdiff_t>& steps);
/// `constant` with elements from the places that `indices` lists.
Constant picked(const Constant& constant, model::Shape shape,
                const std::vector<std::size_t>& indices);
/// The shape to which both extend; nullopt if they do not fit.
std::optional<model::Shape> common_shape(const Constant& a, const Constant& b);
/// The element that all elements equal, as an array without axes; nullopt if they differ.
Folded equal_element(const Folding& f, const Constant& constant);
/// `constant` repeated to `shape`, to which it extends. nullopt if the shape has the number of
/// samples, and the elements are not all equal.
Folded expanded(const Folding& f, const Constant& constant, const model::Shape& shape);

}  // namespace lockstep::onnx
