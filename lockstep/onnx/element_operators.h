// The operators that compute a function of each element: the one table from which constants are
// folded, graphs imported and layers exported. Private to the module.
#pragma once

#include <array>
#include <span>
#include <string_view>

namespace lockstep::inline v0::onnx {

/// An operator of one array that computes a function of each element.
struct ElementOperator {
  /// A number that the function depends on.
  struct Number {
    const char* attribute = nullptr;  ///< its name in the operator; null: none
    float otherwise = 0;              ///< without the attribute
  };
  std::string_view type;                                      ///< such as "Elu"
  double (*function)(double x, double first, double second);  ///< with the values of `numbers`
  std::string_view layer = {};  ///< the layer that is exported as this operator; empty: none
  std::array<Number, 2> numbers = {};
};

/// All of them but Gelu, whose attribute is a word.
std::span<const ElementOperator> element_operators();

}  // namespace lockstep::inline v0::onnx
