// Operators on constants, compared with onnxruntime, and results that depend on the number of
// samples.
#include "lockstep/onnx/import/folding.h"

#include <fmt/format.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <ostream>
#include <string>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::onnx {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ints = std::vector<std::int64_t>;

constexpr TensorType kFloat = TensorType::float32;
constexpr TensorType kInt = TensorType::int64;
constexpr TensorType kInt8 = TensorType::int8;
constexpr TensorType kBool = TensorType::boolean;

/// An array; `kNone` is an omitted input.
struct Values {
  TensorType type;
  Ints shape;
  std::vector<double> values;
};
const Values kNone{TensorType::string, {}, {}};

template <typename Element>
Tensor tensor_of_type(const Values& values) {
  const std::vector<Element> elements(values.values.begin(), values.values.end());
  Tensor tensor;
  tensor.type = values.type;
  tensor.shape = values.shape;
  tensor.bytes.assign(reinterpret_cast<const char*>(elements.data()),
                      elements.size() * sizeof(Element));
  return tensor;
}

Tensor tensor_of(TensorType type, Ints shape, std::vector<double> values) {
  const Values all{type, std::move(shape), std::move(values)};
  return type == kFloat ? tensor_of_type<float>(all)
         : type == kInt ? tensor_of_type<std::int64_t>(all)
                        : tensor_of_type<std::int8_t>(all);
}

Constant constant_from(const Values& values) {
  return constant_of(tensor_of(values.type, values.shape, values.values));
}

std::vector<double> values_in(const Constant& constant) {
  return visit_values(constant, [](const auto& values) {
    return std::vector<double>(values.begin(), values.end());
  });
}

Folded fold(const std::string& type, const std::vector<Constant>& constants,
            std::vector<Attribute> options = {}, std::size_t elements = 1000) {
  Node node;
  node.type = type;
  node.outputs = {"y"};
  node.attributes = std::move(options);
  std::vector<const Constant*> inputs;
  for (const Constant& one : constants) inputs.push_back(&one);
  return ConstantFolder(elements).fold(node, inputs, 0, 18, "net.onnx");
}

struct FoldedNode {
  const char* type;
  std::vector<Values> inputs;
  std::vector<Attribute> options;
  Ints shape;
  std::vector<double> values;
  std::int64_t opset = 18;
  std::size_t output = 0;
  std::size_t outputs = 1;

  friend std::ostream& operator<<(std::ostream& out, const FoldedNode& one) {
    return out << one.type;
  }
};

class OnnxFolding : public ::testing::TestWithParam<FoldedNode> {};

TEST_P(OnnxFolding, ComputesWhatOnnxruntimeComputes) {
  const FoldedNode& test = GetParam();
  Node node;
  node.type = test.type;
  node.outputs.resize(test.outputs, "y");
  node.attributes = test.options;
  std::vector<Constant> constants;
  for (const Values& input : test.inputs)
    if (input.type != kNone.type) constants.push_back(constant_from(input));
  std::vector<const Constant*> inputs;
  std::size_t next = 0;
  for (const Values& input : test.inputs)
    inputs.push_back(input.type == kNone.type ? nullptr : &constants[next++]);
  const Folded result =
      ConstantFolder(1000).fold(node, inputs, test.output, test.opset, "net.onnx");
  ASSERT_TRUE(result);
  EXPECT_EQ(result->shape, test.shape);
  const std::vector<double> values = values_in(*result);
  ASSERT_EQ(values.size(), test.values.size());
  for (std::size_t k = 0; k < values.size(); ++k)
    EXPECT_NEAR(values[k], test.values[k], 2e-7 * (1 + std::abs(test.values[k]))) << k;
}

const Values kNumbers{kFloat, {3}, {-2, 0.25, 3}};
const Values kMatrix{kFloat, {2, 3}, {-2, -0.5, 0, 0.25, 1, 3}};
const Values kColumn{kFloat, {2, 1}, {1, -2}};
const Values kRowOf3{kFloat, {3}, {2, 4, -0.5}};
const Values kIntegers{kInt, {2, 2}, {-7, 3, 0, 5}};
const Values kIntegerColumn{kInt, {2, 1}, {7, -7}};
const Values kIntegerRow{kInt, {3}, {2, -3, 4}};
const Values kCube{kFloat, {2, 3, 2}, {3, -1, 2, 5, -4, 0.5, 1, 1, 2, 7, 8, -9}};
const Values kAxes{kInt, {2}, {0, -1}};
const Values kPositive{kFloat, {3}, {0.25, 1, 4}};
const Values kStacked{kFloat, {2, 1, 2, 3}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}};
const Values kMatrices{kFloat, {2, 3, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}};

// Results of onnxruntime 1.32.
const FoldedNode kFoldedNodes[] = {
    {"Abs", {kNumbers}, {}, {3}, {2, 0.25, 3}},
    {"Abs", {{kInt, {2}, {-7, 3}}}, {}, {2}, {7, 3}},
    {"Neg", {kNumbers}, {}, {3}, {2, -0.25, -3}},
    {"Neg", {{kInt, {2}, {-7, 3}}}, {}, {2}, {7, -3}},
    {"Relu", {kNumbers}, {}, {3}, {0, 0.25, 3}},
    {"Sign", {kNumbers}, {}, {3}, {-1, 1, 1}},
    {"Sign", {{kInt, {2}, {-7, 3}}}, {}, {2}, {-1, 1}},
    {"Ceil", {kNumbers}, {}, {3}, {-2, 1, 3}},
    {"Cos", {kNumbers}, {}, {3}, {-0.416146845, 0.968912423, -0.989992499}},
    {"Erf", {kNumbers}, {}, {3}, {-0.995322287, 0.276326388, 0.999977887}},
    {"Exp", {kNumbers}, {}, {3}, {0.135335281, 1.28402543, 20.085537}},
    {"Floor", {kNumbers}, {}, {3}, {-2, 0, 3}},
    {"HardSwish", {kNumbers}, {}, {3}, {-0.333333313, 0.135416672, 3}},
    {"Round", {kNumbers}, {}, {3}, {-2, 0, 3}},
    {"Sigmoid", {kNumbers}, {}, {3}, {0.119202912, 0.562176466, 0.952574134}},
    {"Sin", {kNumbers}, {}, {3}, {-0.909297407, 0.247403964, 0.141120002}},
    {"Softplus", {kNumbers}, {}, {3}, {0.126928002, 0.825939417, 3.04858732}},
    {"Softsign", {kNumbers}, {}, {3}, {-0.666666687, 0.200000003, 0.75}},
    {"Tan", {kNumbers}, {}, {3}, {2.18503976, 0.255341917, -0.142546549}},
    {"Tanh", {kNumbers}, {}, {3}, {-0.964027584, 0.244918659, 0.995054722}},
    {"Round", {{kFloat, {4}, {0.5, 1.5, 2.5, -0.5}}}, {}, {4}, {0, 2, 2, -0}},
    {"Log", {kPositive}, {}, {3}, {-1.38629436, 0, 1.38629436}},
    {"Reciprocal", {kPositive}, {}, {3}, {4, 1, 0.25}},
    {"Sqrt", {kPositive}, {}, {3}, {0.5, 1, 2}},
    {"LeakyRelu", {kNumbers}, {{"alpha", 0.2f}}, {3}, {-0.400000006, 0.25, 3}},
    {"Gelu", {kNumbers}, {}, {3}, {-0.0455002785, 0.149676576, 2.99595022}, 20},
    {"Gelu",
     {kNumbers},
     {{"approximate", std::string("tanh")}},
     {3},
     {-0.045402348, 0.149675354, 2.99636269},
     20},
    {"Add", {kColumn, kRowOf3}, {}, {2, 3}, {3, 5, 0.5, 0, 2, -2.5}},
    {"Sub", {kColumn, kRowOf3}, {}, {2, 3}, {-1, -3, 1.5, -4, -6, -1.5}},
    {"Mul", {kColumn, kRowOf3}, {}, {2, 3}, {2, 4, -0.5, -4, -8, 1}},
    {"Div", {kColumn, kRowOf3}, {}, {2, 3}, {0.5, 0.25, -2, -1, -0.5, 4}},
    {"Max", {kColumn, kRowOf3}, {}, {2, 3}, {2, 4, 1, 2, 4, -0.5}},
    {"Min", {kColumn, kRowOf3}, {}, {2, 3}, {1, 1, -0.5, -2, -2, -2}},
    {"Mean", {kColumn, kRowOf3}, {}, {2, 3}, {1.5, 2.5, 0.25, 0, 1, -1.25}},
    {"Sum", {kColumn, kRowOf3}, {}, {2, 3}, {3, 5, 0.5, 0, 2, -2.5}},
    {"Pow", {{kFloat, {2, 1}, {1, 2}}, kRowOf3}, {}, {2, 3}, {1, 1, 1, 4, 16, 0.707106769}},
    {"Pow", {{kFloat, {2}, {3, -2}}, {kInt, {}, {2}}}, {}, {2}, {9, 4}},
    {"Pow", {{kInt, {2}, {3, -2}}, {kInt, {}, {3}}}, {}, {2}, {27, -8}},
    {"Max", {kMatrix, kColumn, kRowOf3}, {}, {2, 3}, {2, 4, 1, 2, 4, 3}},
    {"Sum", {kMatrix, kColumn, kRowOf3}, {}, {2, 3}, {1, 4.5, 0.5, 0.25, 3, 0.5}},
    {"Mean",
     {kMatrix, kColumn, kRowOf3},
     {},
     {2, 3},
     {0.333333343, 1.5, 0.166666672, 0.0833333358, 1, 0.166666672}},
    {"Add", {kIntegerColumn, kIntegerRow}, {}, {2, 3}, {9, 4, 11, -5, -10, -3}},
    {"Sub", {kIntegerColumn, kIntegerRow}, {}, {2, 3}, {5, 10, 3, -9, -4, -11}},
    {"Mul", {kIntegerColumn, kIntegerRow}, {}, {2, 3}, {14, -21, 28, -14, 21, -28}},
    {"Div", {kIntegerColumn, kIntegerRow}, {}, {2, 3}, {3, -2, 1, -3, 2, -1}},
    {"Max", {kIntegerColumn, kIntegerRow}, {}, {2, 3}, {7, 7, 7, 2, -3, 4}},
    {"Min", {kIntegerColumn, kIntegerRow}, {}, {2, 3}, {2, -3, 4, -7, -7, -7}},
    {"Mod", {kIntegerColumn, kIntegerRow}, {}, {2, 3}, {1, -2, 3, 1, -1, 1}},
    {"Mod",
     {kIntegerColumn, kIntegerRow},
     {{"fmod", std::int64_t{1}}},
     {2, 3},
     {1, 1, 3, -1, -1, -3}},
    {"Mod",
     {{kFloat, {2, 1}, {7.5, -7.5}}, {kFloat, {2}, {2, -3}}},
     {{"fmod", std::int64_t{1}}},
     {2, 2},
     {1.5, 1.5, -1.5, -1.5}},
    {"Equal", {kNumbers, {kFloat, {}, {0.25}}}, {}, {3}, {0, 1, 0}},
    {"Equal", {{kInt, {3}, {1, 2, 3}}, {kInt, {}, {2}}}, {}, {3}, {0, 1, 0}},
    {"Greater", {kNumbers, {kFloat, {}, {0.25}}}, {}, {3}, {0, 0, 1}},
    {"Greater", {{kInt, {3}, {1, 2, 3}}, {kInt, {}, {2}}}, {}, {3}, {0, 0, 1}},
    {"GreaterOrEqual", {kNumbers, {kFloat, {}, {0.25}}}, {}, {3}, {0, 1, 1}},
    {"GreaterOrEqual", {{kInt, {3}, {1, 2, 3}}, {kInt, {}, {2}}}, {}, {3}, {0, 1, 1}},
    {"Less", {kNumbers, {kFloat, {}, {0.25}}}, {}, {3}, {1, 0, 0}},
    {"Less", {{kInt, {3}, {1, 2, 3}}, {kInt, {}, {2}}}, {}, {3}, {1, 0, 0}},
    {"LessOrEqual", {kNumbers, {kFloat, {}, {0.25}}}, {}, {3}, {1, 1, 0}},
    {"LessOrEqual", {{kInt, {3}, {1, 2, 3}}, {kInt, {}, {2}}}, {}, {3}, {1, 1, 0}},
    {"And", {{kBool, {2, 1}, {1, 0}}, {kBool, {2}, {1, 0}}}, {}, {2, 2}, {1, 0, 0, 0}},
    {"Or", {{kBool, {2, 1}, {1, 0}}, {kBool, {2}, {1, 0}}}, {}, {2, 2}, {1, 1, 1, 0}},
    {"Xor", {{kBool, {2, 1}, {1, 0}}, {kBool, {2}, {1, 0}}}, {}, {2, 2}, {0, 1, 1, 0}},
    {"Not", {{kBool, {2}, {1, 0}}}, {}, {2}, {0, 1}},
    {"Where",
     {{kBool, {2, 1}, {1, 0}}, kMatrix, {kFloat, {}, {9}}},
     {},
     {2, 3},
     {-2, -0.5, 0, 9, 9, 9}},
    {"Where",
     {{kBool, {2}, {1, 0}}, {kInt, {}, {4}}, {kInt, {2, 1}, {5, 6}}},
     {},
     {2, 2},
     {4, 5, 4, 6}},
    {"Clip",
     {kMatrix, {kFloat, {}, {-1}}, {kFloat, {}, {2}}},
     {},
     {2, 3},
     {-1, -0.5, 0, 0.25, 1, 2}},
    {"Clip", {kMatrix, kNone, {kFloat, {}, {0.5}}}, {}, {2, 3}, {-2, -0.5, 0, 0.25, 0.5, 0.5}},
    {"Clip", {kIntegers, {kInt, {}, {-1}}}, {}, {2, 2}, {-1, 3, 0, 5}},
    {"Cast", {kMatrix}, {{"to", std::int64_t{9}}}, {2, 3}, {1, 1, 0, 1, 1, 1}},
    {"Cast", {kMatrix}, {{"to", std::int64_t{7}}}, {2, 3}, {-2, 0, 0, 0, 1, 3}},
    {"Cast", {kIntegers}, {{"to", std::int64_t{1}}}, {2, 2}, {-7, 3, 0, 5}},
    {"Cast", {kIntegers}, {{"to", std::int64_t{9}}}, {2, 2}, {1, 1, 0, 1}},
    {"Cast",
     {{kFloat, {3}, {-1.70000005, 1.70000005, 200}}},
     {{"to", std::int64_t{6}}},
     {3},
     {-1, 1, 200}},
    {"Dropout", {kMatrix}, {}, {2, 3}, {-2, -0.5, 0, 0.25, 1, 3}},
    {"Identity", {kIntegers}, {}, {2, 2}, {-7, 3, 0, 5}},
    {"DequantizeLinear",
     {{kInt8, {2, 2}, {1, -2, 3, 4}}, {kFloat, {2}, {0.5, 2}}, {kInt8, {2}, {1, 0}}},
     {{"axis", std::int64_t{0}}},
     {2, 2},
     {0, -1.5, 6, 8}},
    {"Concat",
     {kMatrix, {kFloat, {1, 3}, {7, 8, 9}}},
     {{"axis", std::int64_t{0}}},
     {3, 3},
     {-2, -0.5, 0, 0.25, 1, 3, 7, 8, 9}},
    {"ConstantOfShape", {{kInt, {2}, {2, 3}}}, {}, {2, 3}, {0, 0, 0, 0, 0, 0}},
    {"ConstantOfShape", {{kInt, {1}, {2}}}, {{"value", tensor_of(kInt, {1}, {5})}}, {2}, {5, 5}},
    {"Constant", {}, {{"value_ints", Ints{3, 1}}}, {2}, {3, 1}},
    {"Constant", {}, {{"value_floats", std::vector<float>{3, 1}}}, {2}, {3, 1}},
    {"Constant", {}, {{"value_int", std::int64_t{3}}}, {}, {3}},
    {"Constant", {}, {{"value_float", 2.5f}}, {}, {2.5}},
    {"Constant", {}, {{"value", tensor_of(kFloat, {2}, {5, 6})}}, {2}, {5, 6}},
    {"Expand",
     {{kFloat, {3, 1}, {1, 2, 3}}, {kInt, {3}, {2, 1, 2}}},
     {},
     {2, 3, 2},
     {1, 1, 2, 2, 3, 3, 1, 1, 2, 2, 3, 3}},
    {"Expand",
     {{kFloat, {2, 3}, {0, 1, 2, 3, 4, 5}}, {kInt, {1}, {1}}},
     {},
     {2, 3},
     {0, 1, 2, 3, 4, 5}},
    {"Flatten",
     {{kFloat, {2, 3, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}}},
     {{"axis", std::int64_t{2}}},
     {6, 2},
     {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
    {"Flatten",
     {{kFloat, {2, 3, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}}},
     {{"axis", std::int64_t{-3}}},
     {1, 12},
     {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
    {"Gather",
     {kMatrix, {kInt, {2, 1}, {-1, 0}}},
     {{"axis", std::int64_t{1}}},
     {2, 2, 1},
     {0, -2, 3, 0.25}},
    {"Pad",
     {kMatrix, {kInt, {4}, {1, 0, 0, 2}}, {kFloat, {}, {9}}},
     {},
     {3, 5},
     {9, 9, 9, 9, 9, -2, -0.5, 0, 9, 9, 0.25, 1, 3, 9, 9}},
    {"Pad", {kIntegers, {kInt, {4}, {0, 1, 0, 0}}}, {}, {2, 3}, {0, -7, 3, 0, 0, 5}},
    {"Range",
     {{kFloat, {}, {1}}, {kFloat, {}, {2}}, {kFloat, {}, {0.300000012}}},
     {},
     {4},
     {1, 1.29999995, 1.60000002, 1.9000001}},
    {"Range", {{kInt, {}, {5}}, {kInt, {}, {-1}}, {kInt, {}, {-2}}}, {}, {3}, {5, 3, 1}},
    {"Range", {{kInt, {}, {2}}, {kInt, {}, {2}}, {kInt, {}, {1}}}, {}, {0}, {}},
    {"Reshape", {kMatrix, {kInt, {2}, {0, -1}}}, {}, {2, 3}, {-2, -0.5, 0, 0.25, 1, 3}},
    {"Reshape", {kMatrix, {kInt, {2}, {3, 2}}}, {}, {3, 2}, {-2, -0.5, 0, 0.25, 1, 3}},
    {"Shape",
     {{kFloat, {2, 3, 4}, {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11,
                           12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23}}},
     {{"start", std::int64_t{1}}},
     {2},
     {3, 4}},
    {"Shape", {kMatrix}, {}, {2}, {2, 3}},
    {"Size", {kMatrix}, {}, {}, {6}},
    {"Slice",
     {{kFloat, {2, 6}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
      {kInt, {2}, {5, 0}},
      {kInt, {2}, {0, 2}},
      {kInt, {2}, {1, 0}},
      {kInt, {2}, {-2, 1}}},
     {},
     {2, 3},
     {5, 3, 1, 11, 9, 7}},
    {"Slice",
     {{kFloat, {7}, {0, 1, 2, 3, 4, 5, 6}},
      {kInt, {1}, {1}},
      {kInt, {1}, {100}},
      {kInt, {1}, {0}},
      {kInt, {1}, {3}}},
     {},
     {2},
     {1, 4}},
    {"Slice",
     {{kFloat, {4}, {0, 1, 2, 3}},
      {kInt, {1}, {-1}},
      {kInt, {1}, {-9.22337204e+18}},
      {kInt, {1}, {0}},
      {kInt, {1}, {-1}}},
     {},
     {4},
     {3, 2, 1, 0}},
    {"Split",
     {{kFloat, {5, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}}, {kInt, {2}, {2, 3}}},
     {{"axis", std::int64_t{0}}},
     {3, 2},
     {4, 5, 6, 7, 8, 9},
     18,
     1,
     2},
    {"Split",
     {{kFloat, {2, 5}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}}},
     {{"axis", std::int64_t{1}}, {"num_outputs", std::int64_t{3}}},
     {2, 1},
     {4, 9},
     18,
     2,
     3},
    {"Squeeze", {{kFloat, {1, 2, 1}, {1, 2}}, {kInt, {1}, {-1}}}, {}, {1, 2}, {1, 2}},
    {"Squeeze", {{kFloat, {1, 2, 1}, {1, 2}}}, {}, {2}, {1, 2}},
    {"Unsqueeze", {kRowOf3, {kInt, {2}, {0, -1}}}, {}, {1, 3, 1}, {2, 4, -0.5}},
    {"Tile", {kMatrix, {kInt, {2}, {2, 2}}}, {}, {4, 6}, {-2,   -0.5, 0, -2,   -0.5, 0,
                                                          0.25, 1,    3, 0.25, 1,    3,
                                                          -2,   -0.5, 0, -2,   -0.5, 0,
                                                          0.25, 1,    3, 0.25, 1,    3}},
    {"Transpose",
     {{kFloat, {2, 3, 1}, {0, 1, 2, 3, 4, 5}}},
     {{"perm", Ints{2, 0, 1}}},
     {1, 2, 3},
     {0, 1, 2, 3, 4, 5}},
    {"Transpose", {kMatrix}, {}, {3, 2}, {-2, 0.25, -0.5, 1, 0, 3}},
    {"Trilu",
     {{kFloat, {3, 4}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}}},
     {{"upper", std::int64_t{0}}},
     {3, 4},
     {1, 0, 0, 0, 5, 6, 0, 0, 9, 10, 11, 0}},
    {"Trilu",
     {{kFloat, {3, 4}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}}, {kInt, {}, {1}}},
     {{"upper", std::int64_t{0}}},
     {3, 4},
     {1, 2, 0, 0, 5, 6, 7, 0, 9, 10, 11, 12}},
    {"Trilu",
     {{kFloat, {3, 4}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}}, {kInt, {}, {-1}}},
     {{"upper", std::int64_t{0}}},
     {3, 4},
     {0, 0, 0, 0, 5, 0, 0, 0, 9, 10, 0, 0}},
    {"Trilu",
     {{kFloat, {3, 4}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}}},
     {{"upper", std::int64_t{1}}},
     {3, 4},
     {1, 2, 3, 4, 0, 6, 7, 8, 0, 0, 11, 12}},
    {"Trilu",
     {{kFloat, {3, 4}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}}, {kInt, {}, {1}}},
     {{"upper", std::int64_t{1}}},
     {3, 4},
     {0, 2, 3, 4, 0, 0, 7, 8, 0, 0, 0, 12}},
    {"Trilu",
     {{kFloat, {3, 4}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}}, {kInt, {}, {-1}}},
     {{"upper", std::int64_t{1}}},
     {3, 4},
     {1, 2, 3, 4, 5, 6, 7, 8, 0, 10, 11, 12}},
    {"Trilu",
     {{kInt, {2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8}}},
     {{"upper", std::int64_t{0}}},
     {2, 2, 2},
     {1, 0, 3, 4, 5, 0, 7, 8}},
    {"ReduceL1", {kCube, kAxes}, {{"keepdims", std::int64_t{0}}}, {3}, {6, 16, 21.5}},
    {"ReduceL2",
     {kCube, kAxes},
     {{"keepdims", std::int64_t{0}}},
     {3},
     {3.46410155, 9.05538559, 12.6984253}},
    {"ReduceMax", {kCube, kAxes}, {{"keepdims", std::int64_t{0}}}, {3}, {3, 7, 8}},
    {"ReduceMean", {kCube, kAxes}, {{"keepdims", std::int64_t{0}}}, {3}, {1, 4, -1.125}},
    {"ReduceMin", {kCube, kAxes}, {{"keepdims", std::int64_t{0}}}, {3}, {-1, 2, -9}},
    {"ReduceProd", {kCube, kAxes}, {{"keepdims", std::int64_t{0}}}, {3}, {-3, 140, 144}},
    {"ReduceSum", {kCube, kAxes}, {{"keepdims", std::int64_t{0}}}, {3}, {4, 16, -4.5}},
    {"ReduceSumSquare", {kCube, kAxes}, {{"keepdims", std::int64_t{0}}}, {3}, {12, 82, 161.25}},
    {"ReduceMin", {kCube}, {}, {1, 1, 1}, {-9}},
    {"ReduceProd", {{kInt, {3}, {2, 3, 4}}}, {{"keepdims", std::int64_t{0}}}, {}, {24}},
    {"ReduceMax", {kIntegers}, {{"axes", Ints{1}}}, {2, 1}, {3, 5}, 13},
    {"ReduceSum", {kIntegers}, {{"noop_with_empty_axes", std::int64_t{1}}}, {2, 2}, {-7, 3, 0, 5}},
    {"ReduceProd", {{kInt, {0}, {}}}, {{"keepdims", std::int64_t{0}}}, {}, {1}},
    {"ReduceMean",
     {kCube},
     {{"axes", Ints{1}}, {"keepdims", std::int64_t{0}}},
     {2, 2},
     {0.333333343, 1.5, 3.66666675, -0.333333343},
     13},
    {"CumSum",
     {{kFloat, {2, 3}, {0, 1, 2, 3, 4, 5}}, {kInt, {}, {1}}},
     {},
     {2, 3},
     {0, 1, 3, 3, 7, 12}},
    {"CumSum",
     {{kInt, {2, 3}, {0, 1, 2, 3, 4, 5}}, {kInt, {}, {-2}}},
     {},
     {2, 3},
     {0, 1, 2, 3, 5, 7}},
    {"Softmax",
     {kMatrix},
     {{"axis", std::int64_t{0}}},
     {2, 3},
     {0.0953494683, 0.182425514, 0.0474258736, 0.904650509, 0.817574441, 0.952574134}},
    {"Softmax",
     {kMatrix},
     {{"axis", std::int64_t{1}}},
     {2, 3},
     {0.0776955858, 0.348207444, 0.574097037, 0.05330595, 0.112848699, 0.833845377},
     11},
    {"MatMul",
     {kStacked, kMatrices},
     {},
     {2, 2, 2, 2},
     {10, 13, 28, 40, 28, 31, 100, 112, 46, 67, 64, 94, 172, 193, 244, 274}},
    {"MatMul", {{kFloat, {3}, {1, 2, 3}}, kMatrices}, {}, {2, 2}, {16, 22, 52, 58}},
    {"MatMul", {kStacked, {kFloat, {3}, {1, 2, 3}}}, {}, {2, 1, 2}, {8, 26, 44, 62}},
    {"MatMul", {{kFloat, {2}, {1, 2}}, {kFloat, {2}, {3, 4}}}, {}, {}, {11}},
    {"Gemm",
     {{kFloat, {3, 2}, {0, 1, 2, 3, 4, 5}},
      {kFloat, {4, 3}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
      {kFloat, {4}, {1, 2, 3, 4}}},
     {{"transA", std::int64_t{1}}, {"transB", std::int64_t{1}}, {"alpha", 0.5f}, {"beta", 2.0f}},
     {2, 4},
     {7, 18, 29, 40, 8.5, 24, 39.5, 55}},
};

INSTANTIATE_TEST_SUITE_P(Nodes, OnnxFolding, ::testing::ValuesIn(kFoldedNodes),
                         [](const auto& one) {
                           return fmt::format("{}_{}", one.param.type, one.index);
                         });

TEST(OnnxFoldingOfShapes, FollowsTheNumberOfSamples) {
  const Constant shape = constant_of(Ints{kSampleCount, -1, 4});
  const Constant minus_one = constant_of(Ints{-1});
  // The export of PyTorch's expand(x.shape[0], -1, 4) of an array of one row.
  const Folded is_kept = fold("Equal", {shape, minus_one});
  ASSERT_TRUE(is_kept);
  EXPECT_THAT(*is_kept->integers(), ElementsAre(0, 1, 0));
  const Folded extents = fold("Where", {*is_kept, constant_of(Ints{1, 1, 1}), shape});
  ASSERT_TRUE(extents);
  EXPECT_THAT(*extents->integers(), ElementsAre(kSampleCount, 1, 4));
  const Folded repeated = fold("Expand", {constant_from({kFloat, {1, 1, 1}, {3}}), *extents});
  ASSERT_TRUE(repeated);
  EXPECT_EQ(repeated->shape, (Ints{kSampleCount, 1, 4}));
  EXPECT_THAT(*repeated->floats(), ElementsAre(3));
  const Folded negative = fold("Neg", {*repeated});
  ASSERT_TRUE(negative);
  EXPECT_THAT(*negative->floats(), ElementsAre(-3));
  const Folded turned = fold("Transpose", {*negative}, {{"perm", Ints{2, 0, 1}}});
  ASSERT_TRUE(turned);
  EXPECT_EQ(turned->shape, (Ints{4, kSampleCount, 1}));
  const Folded as_shape = fold("Shape", {*turned});
  ASSERT_TRUE(as_shape);
  EXPECT_THAT(*as_shape->integers(), ElementsAre(4, kSampleCount, 1));
  const Folded elements =
      fold("ReduceProd", {constant_of(Ints{1, kSampleCount, 1})}, {{"keepdims", std::int64_t{0}}});
  ASSERT_TRUE(elements);
  EXPECT_THAT(*elements->integers(), ElementsAre(kSampleCount));
}

TEST(OnnxFoldingOfShapes, ExtendsZerosOfAFixedNumberOfSamples) {
  const Constant state = constant_from({kFloat, {1, 2, 3}, {0, 0, 0, 0, 0, 0}});
  const Constant shape = constant_of(Ints{1, kSampleCount, 1});
  const Folded zeros = fold("Expand", {state, shape});
  ASSERT_TRUE(zeros);
  EXPECT_EQ(zeros->shape, (Ints{1, kSampleCount, 3}));
  EXPECT_THAT(*zeros->floats(), ElementsAre(0));
  EXPECT_FALSE(fold("Expand", {constant_from({kFloat, {1, 2, 1}, {0, 1}}), shape}));
}

TEST(OnnxFoldingOfShapes, MultipliesAndDividesTheNumberOfSamples) {
  const Constant samples = constant_of(Ints{kSampleCount});
  const Constant eight = constant_of(Ints{8});
  const Folded heads = fold("Mul", {samples, eight});
  ASSERT_TRUE(heads);
  EXPECT_THAT(*heads->integers(), ElementsAre(times_samples(8)));
  EXPECT_EQ(times_in(times_samples(8)), 8);
  EXPECT_EQ(times_in(-1), 0);
  const Folded half = fold("Div", {*heads, constant_of(Ints{4})});
  ASSERT_TRUE(half);
  EXPECT_THAT(*half->integers(), ElementsAre(times_samples(2)));
  EXPECT_FALSE(fold("Div", {*heads, constant_of(Ints{3})}));
  EXPECT_FALSE(fold("Mul", {*heads, constant_of(Ints{-1})}));
  EXPECT_FALSE(fold("Mul", {*heads, samples}));
  EXPECT_FALSE(fold("Add", {*heads, eight}));
  EXPECT_FALSE(fold("Less", {eight, *heads}));
  const Folded larger = fold("Greater", {*heads, constant_of(Ints{0})});
  ASSERT_TRUE(larger);
  EXPECT_THAT(*larger->integers(), ElementsAre(1));
}

TEST(OnnxFoldingOfShapes, KeepsOneOfTheRowsThatAllSamplesRepeat) {
  const Folded row =
      fold("Expand", {constant_from({kFloat, {3}, {1, 2, 3}}), constant_of(Ints{kSampleCount, 3})});
  ASSERT_TRUE(row);
  EXPECT_EQ(row->shape, (Ints{1, 3}));
  EXPECT_THAT(*row->floats(), ElementsAre(1, 2, 3));
}

TEST(OnnxFoldingOfShapes, RejectsResultsThatDependOnTheNumberOfSamples) {
  const Constant samples = constant_of(Ints{kSampleCount});
  const Constant two = constant_of(Ints{2});
  const Constant row = constant_from({kFloat, {3}, {1, 2, 3}});
  const Folded zeros = fold("ConstantOfShape", {constant_of(Ints{2, kSampleCount, 3})});
  ASSERT_TRUE(zeros);
  EXPECT_FALSE(fold("Equal", {samples, two}));
  EXPECT_FALSE(fold("Less", {two, samples}));
  EXPECT_FALSE(fold("Add", {samples, two}));
  EXPECT_FALSE(fold("Range", {reshaped(constant_of(Ints{0}), {}), reshaped(samples, {}),
                              reshaped(constant_of(Ints{1}), {})}));
  EXPECT_FALSE(fold("Slice", {row, constant_of(Ints{0}), samples, constant_of(Ints{0})}));
  EXPECT_FALSE(fold("ReduceSum", {*zeros}));
  EXPECT_FALSE(fold("Cast", {samples}, {{"to", std::int64_t{1}}}));
  EXPECT_FALSE(fold("Pow", {row, samples}));
  // Zeros remain zeros, but the shape of a slice is not tracked.
  const Folded part = fold("Slice", {*zeros, constant_of(Ints{0}), constant_of(Ints{1})});
  ASSERT_TRUE(part);
  EXPECT_TRUE(part->is_zero());
  EXPECT_FALSE(fold("Shape", {*part}));
}

TEST(OnnxFoldingLimits, RejectsASummandThatDoesNotFitTheProduct) {
  const Constant a = constant_from({kFloat, {2, 2}, {1, 2, 3, 4}});
  const Constant b = constant_from({kFloat, {2, 3}, {1, 2, 3, 4, 5, 6}});
  EXPECT_TRUE(fold("Gemm", {a, b, constant_from({kFloat, {3}, {1, 2, 3}})}));
  EXPECT_FALSE(fold("Gemm", {a, b, constant_from({kFloat, {2}, {1, 2}})}));
  EXPECT_FALSE(fold("Gemm", {a, b, constant_from({kFloat, {2, 1, 1}, {1, 2}})}));
}

TEST(OnnxFoldingLimits, RejectsIntegersThatDoNotFit) {
  const Constant large = constant_of(Ints{std::int64_t{1} << 40});
  EXPECT_FALSE(fold("Mul", {large, large}));
  EXPECT_FALSE(fold("Div", {constant_of(Ints{1}), constant_of(Ints{0})}));
  EXPECT_FALSE(fold("Mod", {constant_of(Ints{1}), constant_of(Ints{0})}));
  EXPECT_FALSE(fold("Cast", {large}, {{"to", std::int64_t{6}}}));
  EXPECT_FALSE(fold("Gather", {constant_of(Ints{1, 2}), constant_of(Ints{2})}));
}

TEST(OnnxFoldingLimits, LimitsTheNumberOfElements) {
  const Constant row = constant_from({kFloat, {1, 10}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}});
  const auto expand_to = [&](std::int64_t rows) {
    return fold("Expand", {row, constant_of(Ints{rows, 1})}, {}, 100);
  };
  EXPECT_TRUE(expand_to(10));
  for (const std::int64_t rows : {std::int64_t{11}, std::int64_t{1} << 31}) try {
      expand_to(rows);
      ADD_FAILURE() << rows;
    } catch (const Error& error) {
      EXPECT_EQ(error.category(), ErrorCategory::input);
      EXPECT_THAT(error.what(), HasSubstr("expected constants that can be computed in memory"));
    }
}

}  // namespace
}  // namespace lockstep::inline v0::onnx
