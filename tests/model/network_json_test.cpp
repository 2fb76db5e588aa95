#include "lockstep/model/network/network_json.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "lockstep/base/json/json.h"
#include "lockstep/model/layer/custom_layer.h"
#include "lockstep/model/layers/layers.h"
#include "lockstep/model/zoo/zoo.h"
#include "tests/model/support/error_of.h"
#include "tests/paths.h"

namespace lockstep::inline v0::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> layer_names(const Network& network) {
  std::vector<std::string> names;
  for (const Node& node : network.nodes()) names.push_back(node.name);
  return names;
}

// A network of these layers on [8, 8, 4].
Network with_layers(const std::string& layers) {
  return network_from_json(R"({"input": [8, 8, 4], "layers": [)" + layers + "]}", "net.json");
}

Network read_back(const Network& network);
void expect_equal(const Network& network, const Network& other);

std::string refusal(const std::string& layers) {
  return input_error_of([&] { with_layers(layers); });
}

TEST(NetworkJson, BuildsASequence) {
  const Network network = network_from_json(R"({
    "name": "small",
    "input": [28, 28, 1],
    "layers": [
      {"type": "conv2d", "filters": 32, "kernel": 3, "activation": "relu"},
      {"type": "max_pool2d"},
      {"type": "flatten"},
      {"type": "dense", "units": 10, "name": "logits"}
    ]})",
                                            "net.json");
  EXPECT_EQ(network.name(), "small");
  EXPECT_THAT(layer_names(network),
              ElementsAre("conv2d", "re_lu", "max_pool2d", "flatten", "logits"));
  EXPECT_EQ(network.parameters().element_count(), 320u + 13 * 13 * 32 * 10 + 10);
}

TEST(NetworkJson, InputsNameALayerWithItsActivation) {
  const Network network = with_layers(R"(
    {"type": "conv2d", "filters": 4, "kernel": 3, "padding": "same", "name": "first", "activation": "relu"},
    {"type": "batch_normalization", "name": "second"},
    {"type": "add", "inputs": ["first", "second", "input"], "name": "sum"})");
  EXPECT_THAT(network.nodes().back().inputs, ElementsAre(1, 2, kInput))
      << "first is read after its relu";
}

TEST(NetworkJson, EveryOptionReachesItsLayer) {
  const Network conv = with_layers(
      R"({"type": "conv2d", "filters": 6, "kernel": [3, 5], "strides": [1, 2], "padding": "symmetric", "groups": 2, "use_bias": false, "initializer": "he_normal"})");
  EXPECT_EQ(conv.output_shape(), Shape({8, 4, 6}));
  ASSERT_EQ(conv.parameters().entries().size(), 1u);
  EXPECT_EQ(conv.parameters().entries()[0].shape, Shape({6, 3, 5, 2}));
  EXPECT_EQ(conv.parameters().entries()[0].initializer.kind, Initializer::Kind::he_normal);

  const Network dense = with_layers(
      R"({"type": "flatten"}, {"type": "dense", "units": 3, "use_bias": false, "initializer": "zeros"})");
  ASSERT_EQ(dense.parameters().entries().size(), 1u);
  EXPECT_EQ(dense.parameters().entries()[0].initializer.kind, Initializer::Kind::constant);

  const Network normalization = with_layers(
      R"({"type": "batch_normalization", "momentum": 0.5, "epsilon": 0.1, "initial_gamma": 0})");
  EXPECT_EQ(normalization.parameters().find("batch_normalization/gamma")->initializer.value, 0);

  EXPECT_EQ(with_layers(R"({"type": "max_pool2d", "pool": 3, "strides": 1, "padding": "same"})")
                .output_shape(),
            Shape({8, 8, 4}));
  EXPECT_EQ(with_layers(R"({"type": "average_pool2d", "pool": [4, 2]})").output_shape(),
            Shape({2, 4, 4}));

  EXPECT_EQ(with_layers(R"({"type": "reshape", "shape": [2, 128]})").output_shape(),
            Shape({2, 128}));
  EXPECT_EQ(with_layers(R"({"type": "flatten"}, {"type": "reshape", "shape": [32, 4, 2]},
                           {"type": "permute", "dims": [3, 1, 2]})")
                .output_shape(),
            Shape({2, 32, 4}));
  EXPECT_EQ(with_layers(R"({"type": "concatenate", "inputs": ["input", "input"], "axis": -2})")
                .output_shape(),
            Shape({8, 16, 4}));
  for (const auto& [padding, shape] :
       {std::pair("2", Shape{12, 12, 4}), std::pair("[0, 1]", Shape{8, 10, 4}),
        std::pair("[[1, 2], [3, 4]]", Shape{11, 15, 4})})
    EXPECT_EQ(with_layers(fmt::format(R"({{"type": "zero_padding2d", "padding": {}}})", padding))
                  .output_shape(),
              shape);

  const Network activations = with_layers(
      R"({"type": "leaky_relu", "negative_slope": 0.25}, {"type": "flatten", "activation": "gelu", "approximate": true})");
  EXPECT_EQ(dynamic_cast<const LeakyReLU&>(*activations.nodes()[0].layer).function().negative_slope,
            0.25f);
  EXPECT_TRUE(dynamic_cast<const GELU&>(*activations.nodes()[2].layer).function().approximate);
}

TEST(NetworkJson, BuildsEveryLayer) {
  const Network network = with_layers(R"(
    {"type": "conv2d", "filters": 8, "kernel": 1}, {"type": "batch_normalization"}, {"type": "relu"},
    {"type": "max_pool2d"}, {"type": "average_pool2d"}, {"type": "dropout", "rate": 0.25}, {"type": "dropout"}, {"type": "global_average_pooling2d"},
    {"type": "dense", "units": 3}, {"type": "softmax"})");
  EXPECT_EQ(network.output_shape(), Shape({3}));
  EXPECT_EQ(with_layers(R"({"type": "flatten", "activation": "none"})").nodes().size(), 1u);
}

TEST(NetworkJson, BuildsEveryActivation) {
  for (const LayerType& type : kLayerTypes) {
    SCOPED_TRACE(type.name);
    const std::string layers =
        fmt::format(R"({{"type": "flatten", "activation": "{}"}})", type.name);
    if (type.is_activation)
      EXPECT_EQ(network_to_json(with_layers(layers))->at("layers").at(1).at("type"), type.name);
    else
      EXPECT_THAT(refusal(layers), HasSubstr("expected \"activation\" to be one of none, relu, "));
  }
}

TEST(NetworkJson, UsesShapeAndClassesOfTheData) {
  const std::string text =
      R"({"layers": [{"type": "flatten"}, {"type": "dense", "units": "classes"}]})";
  const Network network =
      network_from_json(text, "net.json", {.input = Shape{4, 4, 1}, .classes = 7});
  EXPECT_EQ(network.input_shape(), Shape({4, 4, 1}));
  EXPECT_EQ(network.output_shape(), Shape({7}));
  EXPECT_THAT(input_error_of(
                  [&] { network_from_json(text, "net.json", {.input = Shape{4}, .classes = {}}); }),
              HasSubstr("[net.json: layer 1 (dense)] expected a data set with classes for "
                        "\"units\": \"classes\"; the number "
                        "of classes is not known"));
  EXPECT_THAT(input_error_of([&] { network_from_json(text, "net.json"); }),
              HasSubstr("[net.json] expected \"input\", the shape of one sample, such as [28, 28, "
                        "1]; the key is missing"));
}

TEST(NetworkJson, RejectsDataOfAnotherShape) {
  EXPECT_EQ(input_error_of([] {
              network_from_json(R"({"input": [28, 28, 1], "layers": [{"type": "flatten"}]})",
                                "net.json", {.input = Shape{32, 32, 3}, .classes = 10});
            }),
            "[net.json] expected samples of shape [28, 28, 1]; the data set has [32, 32, 3]");
}

TEST(NetworkJson, RejectsAnUnknownLayerWithTheNearest) {
  EXPECT_THAT(
      refusal(R"({"type": "flatten"}, {"type": "dens", "units": 3})"),
      ::testing::AllOf(
          ::testing::StartsWith("[net.json: layer 1 (dens)] expected \"type\" to be "
                                "one of conv2d, conv1d, depthwise_conv2d, conv2d_transpose, dense, "
                                "batch_normalization, layer_normalization, rms_normalization, "
                                "group_normalization, scale, "
                                "relu, "),
          HasSubstr(", dropout, flatten, reshape, permute, zero_padding2d, cropping1d, "
                    "concatenate, multiply, add, matmul, max_pool2d, average_pool2d,"),
          ::testing::EndsWith(" global_average_pooling1d, got \"dens\" (did you mean "
                              "dense?)")));
}

TEST(NetworkJson, RejectsAnUnknownKeyWithTheNearest) {
  EXPECT_EQ(refusal(R"({"type": "dropout", "rat": 0.5, "name": "drop"})"),
            "[net.json: layer 0 (dropout \"drop\")] expected one of the keys type, rate, "
            "activation, name, inputs, got "
            "\"rat\" (did you mean rate?)");
  EXPECT_EQ(input_error_of([] { network_from_json(R"({"input": [1], "layer": []})", "net.json"); }),
            "[net.json] expected \"layers\"; the key is missing");
  EXPECT_THAT(
      input_error_of(
          [] { network_from_json(R"({"input": [1], "layers": [], "optimizer": 1})", "net.json"); }),
      HasSubstr("[net.json] expected one of the keys name, inputs, input, layers, outputs, got "
                "\"optimizer\""));
}

TEST(NetworkJson, RejectsMissingKeysAndWrongTypes) {
  EXPECT_EQ(refusal(R"({"type": "conv2d", "kernel": 3})"),
            "[net.json: layer 0 (conv2d)] expected \"filters\"; the key is missing");
  EXPECT_THAT(refusal(R"({"name": "x"})"),
              HasSubstr("[net.json: layer 0 (\"x\")] expected \"type\"; the key is missing"));
  EXPECT_THAT(refusal(R"({"type": "dense", "units": "ten"})"),
              HasSubstr("expected \"units\" to be a positive integer, got \"ten\""));
  EXPECT_THAT(refusal(R"({"type": "dense", "units": 2.5})"),
              HasSubstr("expected \"units\" to be a positive integer, got 2.5"));
  EXPECT_THAT(refusal(R"({"type": "dense", "units": 0})"), HasSubstr("got 0"));
  EXPECT_THAT(refusal(R"({"type": "dense", "units": -3})"), HasSubstr("got -3"));
  EXPECT_THAT(refusal(R"({"type": "dense", "units": 99999999999})"), HasSubstr("got 99999999999"));
  EXPECT_THAT(
      refusal(R"({"type": "conv2d", "filters": 2, "kernel": [3]})"),
      HasSubstr(
          "expected \"kernel\" to be a positive integer or [height, width], got an array of 1"));
  EXPECT_THAT(refusal(R"({"type": "conv2d", "filters": 2, "kernel": 1, "use_bias": 1})"),
              HasSubstr("expected \"use_bias\" to be true or false, got 1"));
  EXPECT_THAT(refusal(R"({"type": "dropout", "rate": "half"})"),
              HasSubstr("expected \"rate\" to be a number, got \"half\""));
  for (const char* const padding : {"-1", "[1, 2, 3]", "[[1], 1]", "true"})
    EXPECT_THAT(
        refusal(fmt::format(R"({{"type": "zero_padding2d", "padding": {}}})", padding)),
        HasSubstr(
            "expected \"padding\" to be a number of zeros, [height, width] or [[top, bottom], "
            "[left, right]], got "));
  for (const char* const axis : {"1.5", "99999999999", "-99999999999"})
    EXPECT_THAT(refusal(fmt::format(R"({{"type": "concatenate", "axis": {}}})", axis)),
                HasSubstr("expected \"axis\" to be an integer, got "));
  EXPECT_THAT(refusal(R"({"type": 3})"), HasSubstr("expected \"type\" to be a string, got 3"));
  EXPECT_THAT(refusal(R"({"type": "flatten", "inputs": "input"})"),
              HasSubstr("expected \"inputs\" to be a list of strings, got \"input\""));
  EXPECT_THAT(refusal(R"({"type": "flatten", "inputs": []})"),
              HasSubstr("expected at least one name in \"inputs\", got none"));
  EXPECT_THAT(refusal(R"("flatten")"),
              HasSubstr("[net.json: layer 0] expected an object {...}, got \"flatten\""));
  EXPECT_THAT(input_error_of([] { network_from_json(R"({"input": [28, 0], "layers": []})", "n"); }),
              HasSubstr("expected \"input\" to be a list of positive integers, got 0"));
  EXPECT_THAT(input_error_of([] { network_from_json(R"({"input": [28], "layers": []})", "n"); }),
              HasSubstr("expected \"layers\" to be a list of at least one layer, got none"));
}

TEST(NetworkJson, RejectsOutputsBeyondAllMemory) {
  const std::string image = R"({"type": "reshape", "shape": [2, 2, 64]}, )";
  const std::string most = "2147483647";
  for (const std::string& layer :
       {R"("up_sampling2d", "size": )" + most, R"("zero_padding2d", "padding": )" + most,
        R"("depthwise_conv2d", "kernel": 1, "depth_multiplier": )" + most,
        R"("conv2d_transpose", "filters": 1, "kernel": 1, "strides": )" + most})
    EXPECT_THAT(refusal(image + R"({"type": )" + layer + "}"),
                HasSubstr("expected extents of less than 2^31, got ["));
  for (const std::string& layer :
       {R"("conv2d", "padding": "same", "filters": 1, "kernel": )" + most,
        R"("max_pool2d", "padding": "same", "pool": )" + most,
        R"("depthwise_conv2d", "padding": "same", "kernel": )" + most,
        R"("conv2d_transpose", "filters": 1, "kernel": )" + most})
    EXPECT_THAT(refusal(image + R"({"type": )" + layer + "}"),
                HasSubstr("expected a window of at most 2^30 pixels, got 2147483647x2147483647"));
  EXPECT_THAT(input_error_of([&] {
                network_from_json(R"({"input": [2147483647, 2147483647], "layers": [
                    {"type": "flatten", "name": "a"}, {"type": "flatten", "inputs": ["input"], "name": "b"},
                    {"type": "concatenate", "inputs": ["a", "b", "a"]}]})",
                                  "net.json");
              }),
              HasSubstr("expected extents of less than 2^31, got [9223372036854775807]"));
}

TEST(NetworkJson, RejectsUnknownWordsInOptions) {
  EXPECT_THAT(refusal(R"({"type": "conv2d", "filters": 2, "kernel": 1, "padding": "full"})"),
              ::testing::AllOf(
                  HasSubstr("[net.json: layer 0 (conv2d)] expected a known name for \"padding\"; "),
                  HasSubstr("got \"full\"")));
  EXPECT_THAT(refusal(R"({"type": "up_sampling2d", "interpolation": "cubic"})"),
              HasSubstr("[interpolation] expected nearest or bilinear, got \"cubic\""));
  EXPECT_THAT(refusal(R"({"type": "conv2d", "filters": 2, "kernel": 1, "initializer": "xavier"})"),
              HasSubstr("expected glorot_uniform, he_normal, he_uniform or zeros, got \"xavier\""));
  EXPECT_THAT(refusal(R"({"type": "flatten", "activation": "rellu"})"),
              ::testing::AllOf(HasSubstr("expected \"activation\" to be one of none, relu, "),
                               HasSubstr(", got \"rellu\" (did you mean relu?)")));
}

TEST(NetworkJson, RejectsInputsThatAreNotDefinedYet) {
  EXPECT_THAT(
      refusal(R"({"type": "relu", "name": "stem"}, {"type": "add", "inputs": ["stme", "input"]})"),
      HasSubstr("[net.json: layer 1 (add)] expected \"inputs\" to name earlier layers, got "
                "\"stme\" (did you mean stem?)"));
  EXPECT_THAT(refusal(R"({"type": "relu", "name": "input"})"),
              HasSubstr("\"input\" is reserved for the input of the network"));
  EXPECT_THAT(refusal(R"({"type": "relu", "name": "a"}, {"type": "relu", "name": "a"})"),
              HasSubstr("[net.json: layer 1 (relu \"a\")]"));
}

// An image and a table, two layers and what follows.
std::string two_inputs_text(const std::string& rest) {
  return R"({"inputs": {"image": {"shape": [2, 2, 1]}, "table": {"shape": [3], "type": "float32"}},
             "layers": [{"type": "flatten", "name": "flat"},
                        {"type": "dense", "inputs": ["table"], "units": 4, "activation": "relu"},
                        {"type": "add", "inputs": ["flat", "dense"], "name": "sum"}])" +
         rest + "}";
}

TEST(NetworkJson, HasNamedInputsAndOutputs) {
  const Network network =
      network_from_json(two_inputs_text(R"(, "outputs": ["sum", {"columns": "dense"}])"), "net");
  EXPECT_EQ(network.input("table"), -2);
  EXPECT_THAT(network.nodes()[1].inputs, ElementsAre(-2));
  ASSERT_EQ(network.outputs().size(), 2U);
  EXPECT_EQ(network.outputs()[0].name, "sum");
  EXPECT_EQ(network.outputs()[1].name, "columns");
  EXPECT_EQ(network.outputs()[1].node, 2) << "after its relu";
  expect_equal(network, read_back(network));

  const Network by_name = network_from_json(
      two_inputs_text(R"(, "outputs": {"total": "sum", "columns": "dense"})"), "net");
  EXPECT_EQ(by_name.outputs()[0].name, "columns") << "an object has the order of its names";
  expect_equal(by_name, read_back(by_name));

  const Network words = network_from_json(
      R"({"inputs": {"word": {"shape": [], "type": "int32"}},
          "layers": [{"type": "embedding", "vocabulary": 5, "dimension": 3}]})",
      "net");
  EXPECT_EQ(words.output_shape(), Shape({3}));
  EXPECT_EQ(words.parameters().element_count(), 15U);
  expect_equal(words, read_back(words));

  const std::string tied =
      R"({"inputs": [{"name": "words", "shape": [4], "type": "int32"}], "name": "tied", "layers": [
          {"type": "embedding", "name": "a", "inputs": ["words"], "vocabulary": 5, "dimension": 3},
          {"type": "positional_embedding", "name": "b", "inputs": ["a"], "kind": "learned"},
          {"type": "tied_dense", "name": "c", "inputs": ["b"], "to": "a", "use_bias": true}]})";
  const Network text = network_from_json(tied, "net");
  EXPECT_EQ(text.output_shape(), Shape({4, 5}));
  EXPECT_EQ(network_to_json(text), parse_json(tied, ErrorCategory::input, "net"));
  expect_equal(text, read_back(text));
  EXPECT_THAT(refusal(R"({"type": "tied_dense", "to": "a"})"),
              HasSubstr("expected an earlier embedding that no other layer shares"));
  EXPECT_THAT(refusal(R"({"type": "positional_embedding", "kind": "sine"})"),
              HasSubstr("expected learned, constant or sinusoidal, got \"sine\""));

  Network unordered({{.name = "z", .shape = {3}}, {.name = "a", .shape = {3}}});
  unordered.add(Add(), {unordered.input("a"), unordered.input("z")});
  const Network read = read_back(unordered);
  EXPECT_EQ(read.input("z"), kInput);
  expect_equal(unordered, read);
}

TEST(NetworkJson, RejectsInputsAndOutputsThatDoNotFit) {
  const auto whole = [](const std::string& text) {
    return input_error_of([&] { network_from_json(text, "net"); });
  };
  const auto ended = [&](const std::string& rest) { return whole(two_inputs_text(rest)); };
  EXPECT_THAT(ended(R"(, "outputs": ["sun"])"),
              HasSubstr("[net] expected \"outputs\" to name earlier layers, got \"sun\" (did you "
                        "mean sum?)"));
  EXPECT_THAT(ended(R"(, "outputs": ["sum", "sum"])"), HasSubstr("[net] expected valid outputs; "));
  EXPECT_THAT(ended(R"(, "outputs": ["table"])"), HasSubstr("[net] expected valid outputs; "));
  EXPECT_THAT(ended(R"(, "outputs": ["flat"])"), HasSubstr("none depends on \"table\""));
  for (const char* outputs : {"[]", "{}", "3", "[3]", R"({"sum": 3})", R"("sum")"})
    EXPECT_THAT(ended(fmt::format(R"(, "outputs": {})", outputs)),
                HasSubstr("expected \"outputs\" to be a list of layers, or an object of names and "
                          "layers, got "))
        << outputs;
  EXPECT_THAT(ended(R"(, "input": [3])"),
              HasSubstr("expected one of the keys name, inputs, layers, outputs, got \"input\""));
  EXPECT_THAT(whole(R"({"inputs": {"image": {"shap": [3]}}, "layers": []})"),
              HasSubstr("[net: input image] expected one of the keys shape, type, got \"shap\""));
  EXPECT_THAT(whole(R"({"inputs": {"image": {"shape": [3], "type": "int"}}, "layers": []})"),
              HasSubstr("[net: input image] expected uint8, int32, "));
  EXPECT_THAT(whole(R"({"inputs": {"image": {}}, "layers": []})"),
              HasSubstr("[net] expected valid \"inputs\"; "));
  for (const char* inputs : {"[]", "{}", "3"})
    EXPECT_THAT(whole(fmt::format(R"({{"inputs": {}, "layers": []}})", inputs)),
                HasSubstr("[net] expected \"inputs\" to be an object such as "));
  EXPECT_THAT(whole(R"({"inputs": {"a": {"shape": [3]}},
                        "layers": [{"type": "relu", "name": "a"}]})"),
              HasSubstr("\"a\" is reserved for the input of the network"));
}

TEST(NetworkJson, NamesTheInvalidLayerOfTheFile) {
  EXPECT_THAT(refusal(R"({"type": "flatten"}, {"type": "conv2d", "filters": 3, "kernel": 3})"),
              ::testing::AllOf(HasSubstr("[net.json: layer 1 (conv2d)] expected a valid layer; "),
                               HasSubstr("expected an input [height, width, channels]"),
                               HasSubstr("got [256]")));
}

TEST(NetworkJson, ReportsThePositionOfJsonErrors) {
  EXPECT_THAT(
      input_error_of([] { network_from_json("{\"input\": [28,\n 28,,]}", "net.json"); }),
      ::testing::AllOf(HasSubstr("[net.json] expected JSON, "), HasSubstr("line 2, column 5")));
  for (const char* text : {"", "{", "\"\xff\"", "[1e999]", "{\"input\": [1]} {}"})
    EXPECT_THAT(input_error_of([&] { network_from_json(text, "net.json"); }),
                HasSubstr("[net.json] expected JSON, "))
        << text;
  EXPECT_THAT(input_error_of([] { network_from_json("[]", "net.json"); }),
              HasSubstr("[net.json] expected an object {...}, got an array of 0"));
}

TEST(NetworkJson, RejectsDescriptionsThatNestWithoutRecursion) {
  const std::string nested =
      "{\"layers\":" + std::string(200'000, '[') + std::string(200'000, ']') + "}";
  EXPECT_EQ(input_error_of([&] { network_from_json(nested, "net.json"); }),
            "[net.json] expected JSON, got more than 64 levels of arrays and objects");
}

TEST(ReadNetwork, ReadsAFileAndNamesIt) {
  const std::filesystem::path file = std::filesystem::path(::testing::TempDir()) /
                                     fmt::format("lockstep_network_{}.json", ::getpid());
  std::ofstream(file) << R"({"input": [4], "layers": [{"type": "dense", "units": 2}]})";
  EXPECT_EQ(read_network(file).output_shape(), Shape({2}));
  std::ofstream(file) << R"({"input": [4], "layers": [{"type": "dense"}]})";
  EXPECT_THAT(input_error_of([&] { read_network(file); }),
              HasSubstr(fmt::format("[{}: layer 0 (dense)] expected \"units\"", file.string())));
  std::filesystem::remove(file);
  EXPECT_EQ(input_error_of([&] { read_network(file); }),
            fmt::format("[{}] expected a readable model description; No such file or directory",
                        file.string()));
}

TEST(ReadNetwork, RejectsADirectory) {
  EXPECT_THAT(input_error_of([] { read_network(::testing::TempDir()); }),
              HasSubstr("expected a readable model description; Is a directory"));
}

TEST(ReadNetwork, BuildsTheExamplesOfItsPage) {
  std::ifstream stream(LOCKSTEP_SOURCE_DIR "/docs/models.md");
  const std::string page{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  const std::string opening = "```json\n";
  std::vector<std::size_t> parameters;
  for (std::size_t begin = page.find(opening); begin != std::string::npos;
       begin = page.find(opening, begin)) {
    begin += opening.size();
    const std::string example = page.substr(begin, page.find("```", begin) - begin);
    const Network network =
        network_from_json(example, "docs/models.md", {.input = {}, .classes = 10});
    EXPECT_EQ(network.output_shape(), Shape({10}));
    parameters.push_back(network.parameters().element_count());
  }
  EXPECT_THAT(parameters, ElementsAre(225'034, 5290, 55'658, 75'963)) << "the first is cnn";
  for (const LayerType& type : kLayerTypes)
    EXPECT_THAT(page, HasSubstr(fmt::format("`{}`", type.name)));
}

// ---- Writing

Network read_back(const Network& network) {
  return network_from_json(dump_json(network_to_json(network).value()), "written");
}

// Whether the two have the same layers, arrays and options.
void expect_equal(const Network& network, const Network& other) {
  EXPECT_EQ(network_to_json(network), network_to_json(other));
  EXPECT_EQ(network.name(), other.name());
  EXPECT_EQ(network.input_shape(), other.input_shape());
  ASSERT_EQ(network.inputs().size(), other.inputs().size());
  ASSERT_EQ(layer_names(network), layer_names(other));
  for (std::size_t i = 0; i < network.nodes().size(); ++i) {
    EXPECT_EQ(network.nodes()[i].layer->kind(), other.nodes()[i].layer->kind());
    EXPECT_EQ(network.nodes()[i].inputs, other.nodes()[i].inputs);
    EXPECT_EQ(network.nodes()[i].output_shape, other.nodes()[i].output_shape);
  }
  for (const auto& [table, other_table] : {std::pair(network.parameters(), other.parameters()),
                                           std::pair(network.buffers(), other.buffers())}) {
    ASSERT_EQ(table.entries().size(), other_table.entries().size());
    for (std::size_t i = 0; i < table.entries().size(); ++i) {
      const ParameterInfo& entry = table.entries()[i];
      const ParameterInfo& read = other_table.entries()[i];
      EXPECT_EQ(entry.name, read.name);
      EXPECT_EQ(entry.shape, read.shape);
      EXPECT_EQ(entry.initializer.kind, read.initializer.kind);
      EXPECT_EQ(entry.initializer.value, read.initializer.value);
    }
  }
}

TEST(NetworkToJson, RoundTripsEveryNetworkOfTheZoo) {
  for (const std::string_view name : zoo::names()) {
    SCOPED_TRACE(name);
    const zoo::DataInput tokens{{.name = "tokens", .shape = {8}, .type = ElementType::int32}, 65};
    const zoo::DataInput pair[] = {
        {{.name = "source", .shape = {6}, .type = ElementType::int32}, 65},
        {{.name = "source_segments", .shape = {6}, .type = ElementType::int32}, 0},
        tokens};
    const zoo::DataInput caption[] = {{{.name = "image", .shape = {32, 32, 3}}}, tokens};
    const Network network = name == "caption"   ? zoo::make(name, caption, 10)
                            : name == "seq2seq" ? zoo::make(name, pair, 10)
                            : name == "gpt" || name == "bert" || name == "minilm"
                                ? zoo::make(name, std::span(&tokens, 1), 10)
                                : zoo::make(name, {32, 32, 3}, 10);
    expect_equal(network, read_back(network));
  }
}

TEST(NetworkToJson, WritesEveryOption) {
  const std::string options = R"(
    {"type": "conv2d", "name": "a", "inputs": ["input"], "filters": 4, "kernel": [3, 5], "strides": [1, 2], "dilation": [2, 1], "padding": "symmetric", "groups": 2, "use_bias": false, "initializer": "he_normal"},
    {"type": "batch_normalization", "name": "b", "inputs": ["a"], "momentum": 0.5, "epsilon": 0.25, "initial_gamma": 0.0},
    {"type": "relu", "name": "c", "inputs": ["a"]},
    {"type": "add", "name": "d", "inputs": ["b", "c", "a"]},
    {"type": "max_pool2d", "name": "e", "inputs": ["d"], "pool": [3, 2], "strides": [1, 2], "padding": "same"},
    {"type": "average_pool2d", "name": "f", "inputs": ["e"], "pool": [2, 1], "padding": "valid"},
    {"type": "dropout", "name": "g", "inputs": ["f"], "rate": 0.25},
    {"type": "flatten", "name": "h", "inputs": ["g"]},
    {"type": "global_average_pooling2d", "name": "i", "inputs": ["g"]},
    {"type": "dense", "name": "j", "inputs": ["h"], "units": 3, "use_bias": false, "initializer": "zeros"},
    {"type": "leaky_relu", "name": "l", "inputs": ["j"], "negative_slope": 0.25},
    {"type": "gelu", "name": "m", "inputs": ["l"], "approximate": true},
    {"type": "softmax", "name": "k", "inputs": ["m"]},
    {"type": "fake_quantize", "name": "fa", "inputs": ["k"], "scale": 0.25, "zero_point": -3, "dtype": "int8"},
    {"type": "fake_quantize", "name": "fb", "inputs": ["fa"], "scale": 0.5, "zero_point": 255, "dtype": "uint8"},
    {"type": "zero_padding2d", "name": "n", "inputs": ["input"], "padding": [[0, 1], [2, 3]]},
    {"type": "concatenate", "name": "o", "inputs": ["n", "n"], "axis": 1},
    {"type": "multiply", "name": "p", "inputs": ["o", "o"]},
    {"type": "reshape", "name": "q", "inputs": ["p"], "shape": [18, 52]},
    {"type": "permute", "name": "r", "inputs": ["q"], "dims": [2, 1]},
    {"type": "lstm", "name": "ra", "inputs": ["q"], "units": 3, "return_sequences": true, "go_backwards": true, "bidirectional": false, "use_bias": true},
    {"type": "gru", "name": "rb", "inputs": ["ra"], "units": 2, "return_sequences": true, "go_backwards": false, "bidirectional": true, "use_bias": true},
    {"type": "simple_rnn", "name": "rc", "inputs": ["rb"], "units": 4, "return_sequences": false, "go_backwards": false, "bidirectional": false, "use_bias": false},
    {"type": "gru", "name": "rd", "inputs": ["q", "j"], "units": 3, "return_sequences": true, "go_backwards": false, "bidirectional": false, "use_bias": true, "initial_state": true},
    {"type": "layer_normalization", "name": "s", "inputs": ["r"], "epsilon": 0.25},
    {"type": "rms_normalization", "name": "y", "inputs": ["r"], "epsilon": 0.25},
    {"type": "positional_embedding", "name": "z", "inputs": ["q"], "kind": "sinusoidal"},
    {"type": "positional_embedding", "name": "ab", "inputs": ["q"], "kind": "constant", "rows": 2},
    {"type": "global_average_pooling1d", "name": "ac", "inputs": ["ab"]},
    {"type": "up_sampling2d", "name": "t", "inputs": ["input"], "size": [2, 1], "interpolation": "bilinear"},
    {"type": "global_max_pooling2d", "name": "u", "inputs": ["t"]},
    {"type": "depthwise_conv2d", "name": "v", "inputs": ["t"], "kernel": [3, 2], "strides": [2, 1], "dilation": [1, 2], "padding": "same", "depth_multiplier": 3, "use_bias": false, "initializer": "he_uniform"},
    {"type": "conv2d_transpose", "name": "x", "inputs": ["input"], "filters": 3, "kernel": [3, 2], "strides": [2, 1], "padding": "same", "use_bias": false, "initializer": "he_uniform"},
    {"type": "attention", "name": "aa", "inputs": ["q"], "heads": 11, "key_value_heads": 1, "causal": true, "rotary": 10000},
    {"type": "additive_attention", "name": "af", "inputs": ["q", "q", "q"]},
    {"type": "cropping1d", "name": "ad", "inputs": ["q"], "cropping": [0, 17]},
    {"type": "dense", "name": "ae", "inputs": ["ad"], "units": 2, "use_bias": true, "initializer": "zeros", "stddev": 0.25},
    {"type": "conv1d", "name": "w", "inputs": ["q"], "filters": 4, "kernel": 5, "strides": 2, "dilation": 3, "padding": "same", "groups": 2, "use_bias": false, "initializer": "zeros"},
    {"type": "silu", "name": "ba", "inputs": ["q"], "beta": 0.5},
    {"type": "elu", "name": "bb", "inputs": ["q"], "alpha": 0.5},
    {"type": "hard_sigmoid", "name": "bc", "inputs": ["q"], "slope": 0.25, "offset": 0.125},
    {"type": "hard_tanh", "name": "bd", "inputs": ["q"], "min_value": -0.5, "max_value": 0.25},
    {"type": "rescaling", "name": "be", "inputs": ["q"], "scale": 0.25, "offset": -0.5, "gradient_factor": 2},
    {"type": "group_normalization", "name": "bf", "inputs": ["q"], "groups": 4, "epsilon": 0.25, "scale": false, "center": true},
    {"type": "scale", "name": "bg", "inputs": ["q"], "use_scale": true, "use_bias": false, "trainable": false},
    {"type": "matmul", "name": "bh", "inputs": ["ba", "bb"], "transpose_b": true})";
  const std::string text = R"({"name": "all", "input": [8, 8, 4], "layers": [)" + options + "]}";
  EXPECT_EQ(network_to_json(network_from_json(text, "net.json")),
            parse_json(text, ErrorCategory::input, "net.json"));
}

TEST(NetworkToJson, RoundTripsRandomGraphs) {
  std::mt19937 random(7);
  const auto one_of = [&](int count) { return static_cast<int>(random() % count); };
  for (int graph = 0; graph < 50; ++graph) {
    Network network({6, 6, 2}, "random");
    std::vector<NodeId> images = {network.add(Conv2D({.filters = 4, .padding = Padding::same}))};
    for (int layer = 0; layer < 8; ++layer) {
      const NodeId from = images[static_cast<std::size_t>(one_of(static_cast<int>(images.size())))];
      const std::string name = one_of(2) == 0 ? "" : fmt::format("layer.{}", layer);
      switch (one_of(6)) {
        case 0:
          images.push_back(network.add(ReLU(), {from}, name));
          break;
        case 1:
          images.push_back(network.add(
              BatchNormalization({.momentum = 0.01F * static_cast<float>(one_of(100)),
                                  .epsilon = 1e-3F * static_cast<float>(1 + one_of(9))}),
              {from}, name));
          break;
        case 2:
          images.push_back(network.add(Dropout({.rate = 0.1F}), {from}, name));
          break;
        case 3:
          images.push_back(network.add(Add(), {from, images.front(), images.back()}, name));
          break;
        case 4:
          images.push_back(network.add(
              MaxPool2D({.pool = 3, .strides = 1, .padding = Padding::same}), {from}, name));
          break;
        default:
          images.push_back(network.add(Conv2D({.filters = 4,
                                               .kernel = {1 + 2 * one_of(2), 3},
                                               .padding = Padding::same,
                                               .groups = 1 + one_of(2),
                                               .use_bias = one_of(2) == 0,
                                               .initializer = Initializer::Kind::he_uniform}),
                                       {from}, name));
      }
    }
    network.add(Flatten());
    network.add(Dense({.units = 3}));
    SCOPED_TRACE(network.summary());
    expect_equal(network, read_back(network));
  }
}

// A user-defined layer that calls itself as a built-in one does.
class OwnReLU final : public CustomLayer {
 public:
  std::string kind() const override { return "re_lu"; }
  Shape build(BuildContext& context) const override { return context.input(); }
  void forward(const Tensors& /*tensors*/, const PassContext& /*pass*/) const override {}
  void backward(const Tensors& /*tensors*/, const PassContext& /*pass*/) const override {}
};

TEST(NetworkToJson, HasNoDescriptionOfOtherLayers) {
  Network network({4});
  EXPECT_FALSE(network_to_json(network)) << "no layers";
  network.add(Dense({.units = 3}));
  EXPECT_TRUE(network_to_json(network));
  network.add(OwnReLU());
  EXPECT_FALSE(network_to_json(network));
  Network reserved({4});
  reserved.add(Dense({.units = 3}), {kInput}, "input");
  EXPECT_FALSE(network_to_json(reserved));
}

}  // namespace
}  // namespace lockstep::inline v0::model
