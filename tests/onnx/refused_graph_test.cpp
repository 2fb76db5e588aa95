// Unsupported graphs: the message names the operator and its node.
#include <fmt/format.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/onnx/import.h"
#include "lockstep/onnx/model.h"

namespace lockstep::inline v0::onnx {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Tensor floats(std::string name, std::vector<std::int64_t> shape, float value = 0.5f) {
  std::size_t count = 1;
  for (const std::int64_t extent : shape) count *= static_cast<std::size_t>(extent);
  const std::vector<float> values(count, value);
  Tensor tensor{.name = std::move(name), .shape = std::move(shape), .bytes = {}};
  tensor.bytes.assign(reinterpret_cast<const char*>(values.data()), count * sizeof(float));
  return tensor;
}

Tensor integers(std::string name, const std::vector<std::int64_t>& values) {
  Tensor tensor{.name = std::move(name),
                .type = TensorType::int64,
                .shape = {static_cast<std::int64_t>(values.size())},
                .bytes = {}};
  tensor.bytes.assign(reinterpret_cast<const char*>(values.data()), values.size() * 8);
  return tensor;
}

/// A node called "the TYPE" from `inputs` to "y".
Node node_of(std::string type, std::vector<std::string> inputs,
             std::vector<Attribute> attributes = {}) {
  return {.name = "the " + type,
          .type = type,
          .domain = "",
          .inputs = std::move(inputs),
          .outputs = {"y"},
          .attributes = std::move(attributes)};
}

/// A graph from "x" of shape `input` to "y".
Model graph_of(std::vector<Extent> input, std::vector<Node> nodes, std::vector<Tensor> weights) {
  Model model;
  model.graph.nodes = std::move(nodes);
  model.graph.initializers = std::move(weights);
  model.graph.inputs = {{.name = "x", .shape = std::move(input)}};
  model.graph.outputs = {{.name = "y", .shape = {}}};
  return model;
}

const std::vector<Extent> kImage = {std::string("N"), 3, 8, 8};
const std::vector<Extent> kRow = {std::string("N"), 6};
const std::vector<Extent> kSequence = {std::string("N"), 5, 6};

std::string message_of(const Model& model) {
  try {
    import_network(model, "net.onnx");
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::input);
    return error.what();
  }
  return "no error";
}

struct RefusedGraph {
  const char* name;
  std::function<Model()> make;
  const char* message;
};

std::ostream& operator<<(std::ostream& out, const RefusedGraph& one) { return out << one.name; }

class OnnxRefusal : public ::testing::TestWithParam<RefusedGraph> {};

TEST_P(OnnxRefusal, NamesTheOperatorAndItsNode) {
  EXPECT_THAT(message_of(GetParam().make()),
              AllOf(HasSubstr("[net.onnx] expected "), HasSubstr(GetParam().message)));
}

Attribute option(std::string name, auto value) { return {std::move(name), std::move(value)}; }

Model convolution(std::vector<Attribute> attributes,
                  std::vector<std::int64_t> kernel = {4, 3, 3, 3}) {
  return graph_of(kImage, {node_of("Conv", {"x", "w"}, std::move(attributes))},
                  {floats("w", std::move(kernel))});
}

Model recurrent(const char* type, std::vector<Attribute> attributes,
                std::vector<std::string> more = {}) {
  const std::int64_t rows = type == std::string("LSTM") ? 16 : 12;
  Node transpose =
      node_of("Transpose", {"x"}, {option("perm", std::vector<std::int64_t>{1, 0, 2})});
  transpose.outputs = {"t"};
  std::vector<std::string> inputs = {"t", "w", "r"};
  inputs.insert(inputs.end(), more.begin(), more.end());
  Node node = node_of(type, inputs, std::move(attributes));
  node.outputs = {"all", "last"};
  Node squeeze = node_of("Squeeze", {"last", "zero"});
  return graph_of(kSequence, {transpose, node, squeeze},
                  {floats("w", {1, rows, 6}), floats("r", {1, rows, 4}), integers("zero", {0}),
                   integers("lengths", {5}), integers("shorter", {4}), floats("state", {1, 1, 4}),
                   floats("peepholes", {1, 12}), floats("zeros", {1, 12}, 0)});
}

const RefusedGraph kRefusedGraphs[] = {
    {"joined_arrays_of_many_samples",
     [] {
       Node zeros = node_of("ConstantOfShape", {"shape"});
       zeros.outputs = {"zeros"};
       Node join = node_of("Concat", {"zeros", "zeros"}, {option("axis", std::int64_t{1})});
       join.outputs = {"joined"};
       return graph_of(kRow, {zeros, join, node_of("Add", {"x", "joined"})},
                       {integers("shape", {std::numeric_limits<std::int64_t>::min(), 0})});
     },
     "ConstantOfShape (node \"the ConstantOfShape\")"},
    {"unknown_operator", [] { return graph_of(kRow, {node_of("Einsum", {"x"})}, {}); },
     "; Einsum (node \"the Einsum\"): this one is not supported"},
    {"operator_of_another_domain",
     [] {
       Node node = node_of("FusedConv", {"x"});
       node.domain = "com.microsoft";
       return graph_of(kRow, {node}, {});
     },
     "FusedConv (node \"the FusedConv\"): this one is not supported of the domain "
     "\"com.microsoft\""},
    {"known_operator_of_another_domain",
     [] {
       Node node = node_of("Relu", {"x"});
       node.domain = "own";
       return graph_of(kRow, {node}, {});
     },
     "Relu (node \"the Relu\"): this one is not supported of the domain \"own\""},
    {"old_operators",
     [] {
       Model model = graph_of(kRow, {node_of("Relu", {"x"})}, {});
       model.opset = 9;
       return model;
     },
     "expected version 11 to 26 of the operators of ONNX (\"opset\"), got 9"},
    {"free_extent",
     [] {
       return graph_of({std::string("N"), std::string("length"), 6}, {node_of("Relu", {"x"})}, {});
     },
     "the input \"x\" has \"length\" as axis 1"},
    {"extent_of_zero",
     [] {
       return graph_of({std::string("N"), 0}, {node_of("Relu", {"x"})}, {});
     },
     "the input \"x\" has 0 as axis 1"},
    {"endless_input",
     [] {
       constexpr std::int64_t kLarge = std::int64_t{1} << 30;
       return graph_of({std::string("N"), kLarge, kLarge, kLarge}, {node_of("Relu", {"x"})}, {});
     },
     "expected inputs of at most 2^40 elements"},
    {"input_of_texts",
     [] {
       Model model = graph_of(kRow, {node_of("Relu", {"x"})}, {});
       model.graph.inputs.front().type = TensorType::string;
       return model;
     },
     "the input \"x\" is of the type 8"},
    {"output_that_nothing_makes",
     [] {
       Model model = graph_of(kRow, {node_of("Relu", {"x"})}, {});
       model.graph.outputs.front().name = "z";
       return model;
     },
     "no node computes \"z\""},
    {"two_tensors_of_one_name",
     [] {
       return graph_of(kRow, {node_of("Relu", {"x"}), node_of("Tanh", {"x"})}, {});
     },
     "two are called \"y\""},
    {"nodes_out_of_order",
     [] {
       Node late = node_of("Relu", {"x"});
       late.outputs = {"z"};
       return graph_of(kRow, {node_of("Relu", {"z"}), late}, {});
     },
     "Relu (node \"the Relu\"): it reads \"z\", which no earlier node computes"},
    {"no_layer", [] { return graph_of(kRow, {node_of("Identity", {"x"})}, {}); },
     "expected outputs that layers compute"},
    {"dilation_of_zero",
     [] {
       return convolution({option("dilations", std::vector<std::int64_t>{0, 2})});
     },
     "expected 2 numbers from 1 on as \"dilations\""},
    {"dilation_of_a_pooling",
     [] {
       return graph_of(kImage,
                       {node_of("MaxPool", {"x"},
                                {option("kernel_shape", std::vector<std::int64_t>{3, 3}),
                                 option("dilations", std::vector<std::int64_t>{2, 2})})},
                       {});
     },
     "expected windows of neighboring elements"},
    {"stride_of_zero",
     [] {
       return convolution({option("strides", std::vector<std::int64_t>{0, 1})});
     },
     "expected 2 numbers from 1 on as \"strides\""},
    {"negative_pads",
     [] {
       return convolution({option("pads", std::vector<std::int64_t>{-1, 0, 0, 0})});
     },
     "expected 4 numbers from 0 on as \"pads\""},
    {"groups_that_do_not_divide", [] { return convolution({option("group", std::int64_t{2})}); },
     "expected a kernel for 3 channels in 2 groups; Conv"},
    {"groups_of_zero", [] { return convolution({option("group", std::int64_t{0})}); },
     "expected a kernel for 3 channels in 0 groups"},
    {"kernel_of_other_channels",
     [] {
       return convolution({}, {4, 2, 3, 3});
     },
     "Conv (node \"the Conv\"): got [4, 2, 3, 3]"},
    {"kernel_of_no_elements",
     [] {
       return convolution({}, {0, 3, 3, 3});
     },
     "Conv (node \"the Conv\"): got [0, 3, 3, 3]"},
    {"window_larger_than_the_image",
     [] {
       return convolution({}, {4, 3, 9, 9});
     },
     "Conv (node \"the Conv\")"},
    {"kernel_that_is_computed",
     [] {
       return graph_of(kImage, {node_of("Conv", {"x", "x"})}, {});
     },
     "expected weights that are constants"},
    {"pooling_border",
     [] {
       return graph_of(kImage,
                       {node_of("MaxPool", {"x"},
                                {option("kernel_shape", std::vector<std::int64_t>{3, 3}),
                                 option("pads", std::vector<std::int64_t>{2, 2, 0, 0})})},
                       {});
     },
     "MaxPool (node \"the MaxPool\"): got \"pads\" 2, 2, 0 and 0"},
    {"transposed_convolution_in_groups",
     [] {
       return graph_of(kImage,
                       {node_of("ConvTranspose", {"x", "w"}, {option("group", std::int64_t{3})})},
                       {floats("w", {3, 2, 3, 3})});
     },
     "ConvTranspose (node \"the ConvTranspose\"): got [3, 8, 8] and [3, 2, 3, 3]"},
    {"enlargement_by_a_fraction",
     [] {
       Tensor scales = floats("scales", {4}, 1.5f);
       return graph_of(kImage, {node_of("Resize", {"x", "", "scales"})}, {scales});
     },
     "expected height and width multiplied by whole numbers"},
    {"cubic_interpolation",
     [] {
       return graph_of(
           kImage,
           {node_of("Resize", {"x", "", "", "sizes"}, {option("mode", std::string("cubic"))})},
           {integers("sizes", {1, 3, 16, 16})});
     },
     "got \"cubic\", \"half_pixel\" and \"round_prefer_floor\""},
    {"groups_of_channels_that_do_not_divide",
     [] {
       return graph_of(kImage,
                       {node_of("GroupNormalization", {"x", "w", "w"},
                                {option("num_groups", std::int64_t{2})})},
                       {floats("w", {2})});
     },
     "got [3, 8, 8] and 2 groups"},
    {"product_of_computed_arrays_that_do_not_fit",
     [] {
       return graph_of(kSequence, {node_of("MatMul", {"x", "x"})}, {});
     },
     "MatMul (node \"the MatMul\"): those of a sample are [5, 6] and [5, 6]"},
    {"product_of_other_rows",
     [] {
       return graph_of(kRow, {node_of("MatMul", {"x", "w"})}, {floats("w", {5, 2})});
     },
     "expected a matrix of weights for rows of 6 elements"},
    {"gemm_of_other_rows",
     [] {
       return graph_of(kRow, {node_of("Gemm", {"x", "w"})}, {floats("w", {5, 2})});
     },
     "expected weights for rows of 6 elements"},
    {"statistics_of_other_channels",
     [] {
       return graph_of(kImage, {node_of("BatchNormalization", {"x", "a", "b", "c", "d"})},
                       {floats("a", {3}), floats("b", {3}), floats("c", {4}), floats("d", {3})});
     },
     "input 3 has 4"},
    {"function_that_no_layer_has",
     [] {
       return graph_of(kRow, {node_of("Pow", {"x", "w"})}, {floats("w", {}, 3)});
     },
     "Pow (node \"the Pow\"): \"y\" is another function of the output of an input"},
    {"quotient_by_each_feature",
     [] {
       return graph_of(kRow, {node_of("Div", {"w", "x"})}, {floats("w", {6})});
     },
     "Div (node \"the Div\"): the constant is [6], a sample [6]"},
    {"factors_of_other_features",
     [] {
       return graph_of(kRow, {node_of("Mul", {"x", "w"})}, {floats("w", {5})});
     },
     "Mul (node \"the Mul\"): the constant is [5], a sample [6]"},
    {"choice_by_the_number_of_samples",
     [] {
       Node shape = node_of("Shape", {"x"});
       shape.outputs = {"shape"};
       Node first = node_of("Gather", {"shape", "zero"});
       first.outputs = {"samples"};
       Node several = node_of("Greater", {"samples", "one"});
       several.outputs = {"several"};
       Node choice = node_of("Where", {"several", "w", "w"});
       choice.outputs = {"chosen"};
       return graph_of(kRow, {shape, first, several, choice, node_of("Mul", {"x", "chosen"})},
                       {integers("zero", {0}), integers("one", {1}), floats("w", {})});
     },
     "Greater (node \"the Greater\")"},
    {"choice_between_two_arrays",
     [] {
       Node positive = node_of("Greater", {"x", "w"});
       positive.outputs = {"positive"};
       return graph_of(kRow, {positive, node_of("Where", {"positive", "x", "row"})},
                       {floats("w", {}, 0), floats("row", {6})});
     },
     "Where (node \"the Where\"): a constant has several"},
    {"reshape_across_samples",
     [] {
       return graph_of(kRow, {node_of("Reshape", {"x", "s"})}, {integers("s", {-1, 4})});
     },
     "Reshape (node \"the Reshape\"): got [-1, 4] for samples of [6]"},
    {"reshape_to_a_huge_extent",
     [] {
       return graph_of(kRow, {node_of("Reshape", {"x", "s"})},
                       {integers("s", {-1, std::numeric_limits<std::int64_t>::max()})});
     },
     "Reshape (node \"the Reshape\")"},
    {"reshape_to_extents_whose_product_overflows",
     [] {
       constexpr std::int64_t kExtent = 1 << 20;
       return graph_of({std::string("N"), kExtent, kExtent}, {node_of("Reshape", {"x", "s"})},
                       {integers("s", {0, kExtent, kExtent, std::int64_t{1} << 30})});
     },
     "Reshape (node \"the Reshape\")"},
    {"softmax_over_samples",
     [] {
       return graph_of(kRow, {node_of("Softmax", {"x"}, {option("axis", std::int64_t{0})})}, {});
     },
     "expected a softmax over one axis of the samples"},
    {"concatenated_samples",
     [] {
       return graph_of(kRow, {node_of("Concat", {"x", "x"}, {option("axis", std::int64_t{0})})},
                       {});
     },
     "Concat (node \"the Concat\"): it is that of the batch"},
    {"sums_of_other_shapes",
     [] {
       Node short_one = node_of("Slice", {"x", "one", "two", "one"});
       short_one.outputs = {"part"};
       return graph_of(kRow, {short_one, node_of("Add", {"x", "part"})},
                       {integers("one", {1}), integers("two", {2})});
     },
     "Add (node \"the Add\"): those of a sample are [6] and [1]"},
    {"position_outside",
     [] {
       Tensor index = integers("i", {7});
       index.shape = {};
       return graph_of(kSequence,
                       {node_of("Gather", {"x", "i"}, {option("axis", std::int64_t{1})})}, {index});
     },
     "expected a position from 0 to 4; Gather (node \"the Gather\"): got 7"},
    {"rows_by_numbers_that_are_no_indices",
     [] {
       return graph_of(kRow, {node_of("Gather", {"w", "x"})}, {floats("w", {9, 4})});
     },
     "Gather (node \"the Gather\")"},
    {"zeros_for_channels",
     [] {
       return graph_of(kImage, {node_of("Pad", {"x", "p"})},
                       {integers("p", {0, 1, 1, 1, 0, 1, 1, 1})});
     },
     "Pad (node \"the Pad\"): it pads other axes"},
    {"order_that_is_none",
     [] {
       return graph_of(
           kRow, {node_of("Transpose", {"x"}, {option("perm", std::vector<std::int64_t>{0, 0})})},
           {});
     },
     "expected an order of 2 axes"},
    {"samples_last",
     [] {
       Node relu = node_of("Relu", {"x"});
       relu.outputs = {"r"};
       return graph_of(
           kRow,
           {relu, node_of("Transpose", {"r"}, {option("perm", std::vector<std::int64_t>{1, 0})})},
           {});
     },
     "expected outputs whose first axis is the samples"},
    {"gru_that_resets_before", [] { return recurrent("GRU", {}); },
     "GRU (node \"the GRU\"): it resets before"},
    {"sequences_of_lengths",
     [] {
       return recurrent("LSTM", {}, {"", "shorter"});
     },
     "LSTM (node \"the LSTM\"): their lengths are an input"},
    {"initial_state",
     [] {
       return recurrent("LSTM", {}, {"", "", "state"});
     },
     "LSTM (node \"the LSTM\"): it is not 0"},
    {"other_activations",
     [] {
       return recurrent(
           "LSTM", {option("activations", std::vector<std::string>{"Sigmoid", "Tanh", "Relu"})});
     },
     "expected the activations sigmoid, tanh, tanh; LSTM (node \"the LSTM\"): got Sigmoid, Tanh, "
     "Relu"},
    {"limited_gates", [] { return recurrent("LSTM", {option("clip", 3.0f)}); },
     "LSTM (node \"the LSTM\"): they are limited to 3"},
    {"peepholes",
     [] {
       return recurrent("LSTM", {}, {"", "", "", "", "peepholes"});
     },
     "LSTM (node \"the LSTM\"): it has some"},
    {"operator_of_constants_alone", [] { return graph_of(kRow, {node_of("CumSum", {"x"})}, {}); },
     "CumSum (node \"the CumSum\"): this one is supported on constants only"},
    {"function_of_no_activation", [] { return graph_of(kRow, {node_of("Sqrt", {"x"})}, {}); },
     "Sqrt (node \"the Sqrt\"): \"y\" is another function of the output of an input"},
    {"several_nodes_of_one_kind",
     [] {
       Node first = node_of("Einsum", {"x"});
       first.outputs = {"a"};
       Node second = node_of("Einsum", {"a"});
       second.name = "another";
       second.outputs = {"b"};
       return graph_of(kRow, {first, second, node_of("Scan", {"b"})}, {});
     },
     "it has 3 others: Einsum (node \"the Einsum\"): this one is not supported (expected a "
     "supported operator (docs/models.md)), 2 nodes; Scan (node \"the Scan\"): this one"},
    {"several_nodes",
     [] {
       Node first = node_of("Einsum", {"x"});
       first.outputs = {"a"};
       Node second = node_of("NonZero", {"x"});
       second.outputs = {"b"};
       Node third = node_of("Relu", {"a"});  // depends on a refused one
       third.outputs = {"c"};
       Node fourth = node_of("Scan", {"c"});
       fourth.outputs = {"d"};
       return graph_of(kRow, {first, second, third, fourth, node_of("Sum", {"b", "d"})}, {});
     },
     "it has 3 others: Einsum (node \"the Einsum\"): this one is not supported (expected a "
     "supported operator (docs/models.md)); NonZero (node \"the NonZero\"): this one is not "
     "supported (expected a supported operator (docs/models.md)); Scan (node \"the Scan\"): this "
     "one is not supported (expected a supported operator (docs/models.md))"},
};

INSTANTIATE_TEST_SUITE_P(Graphs, OnnxRefusal, ::testing::ValuesIn(kRefusedGraphs),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(OnnxRefusals, AcceptExplicitDefaults) {
  using Names = std::vector<std::string>;
  const Attribute limit = option("clip", std::numeric_limits<float>::infinity());
  EXPECT_EQ(message_of(recurrent(
                "LSTM",
                {option("activations", Names{"Sigmoid", "Tanh", "tanh"}), limit,
                 option("input_forget", std::int64_t{0}), option("layout", std::int64_t{0}),
                 option("direction", std::string("forward"))},
                {"", "lengths", "", "", "zeros"})),
            "no error");
  EXPECT_EQ(message_of(recurrent("GRU", {option("activations", Names{"Sigmoid", "Tanh"}), limit,
                                         option("linear_before_reset", std::int64_t{1})})),
            "no error");
}

TEST(OnnxRefusals, IgnoreUnusedNodes) {
  Node other = node_of("Einsum", {"x"});
  other.outputs = {"unused"};
  EXPECT_EQ(message_of(graph_of(kRow, {other, node_of("Relu", {"x"})}, {})), "no error");
}

TEST(OnnxRefusals, LimitTheElementsOfConstants) {
  std::vector<Node> nodes;
  std::string last = "w";
  for (int i = 0; i < 40; ++i) {  // each doubles the size
    Node twice = node_of("Concat", {last, last}, {option("axis", std::int64_t{0})});
    last = fmt::format("c{}", i);
    twice.outputs = {last};
    nodes.push_back(twice);
  }
  nodes.push_back(node_of("Gemm", {"x", last}));
  EXPECT_THAT(message_of(graph_of(kRow, nodes, {floats("w", {6, 4})})),
              HasSubstr("expected constants that can be computed in memory; node \"the Concat\""));
}

TEST(OnnxRefusals, LimitChainsOfFunctions) {
  std::vector<Node> nodes;
  std::string last = "x";
  for (int i = 0; i < 5000; ++i) {
    Node square = node_of("Mul", {last, last});
    last = fmt::format("m{}", i);
    square.outputs = {last};
    nodes.push_back(square);
  }
  nodes.back().outputs = {"y"};
  // Each square becomes a layer.
  EXPECT_EQ(message_of(graph_of(kRow, nodes, {})), "no error");
}

}  // namespace
}  // namespace lockstep::inline v0::onnx
