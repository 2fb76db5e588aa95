#include "lockstep/model/network_json.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/model/support/error_of.h"

namespace lockstep::model {
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
      << "first is read behind its relu";
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
}

TEST(NetworkJson, KnowsEveryLayer) {
  const Network network = with_layers(R"(
    {"type": "conv2d", "filters": 8, "kernel": 1}, {"type": "batch_normalization"}, {"type": "relu"},
    {"type": "max_pool2d"}, {"type": "average_pool2d"}, {"type": "dropout", "rate": 0.25}, {"type": "dropout"}, {"type": "global_average_pooling2d"},
    {"type": "dense", "units": 3}, {"type": "softmax"})");
  EXPECT_EQ(network.output_shape(), Shape({3}));
  EXPECT_EQ(with_layers(R"({"type": "flatten", "activation": "softmax"})").nodes().size(), 2u);
  EXPECT_EQ(with_layers(R"({"type": "flatten", "activation": "none"})").nodes().size(), 1u);
}

TEST(NetworkJson, TakesShapeAndClassesFromTheData) {
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

TEST(NetworkJson, RefusesDataOfAnotherShape) {
  EXPECT_EQ(input_error_of([] {
              network_from_json(R"({"input": [28, 28, 1], "layers": [{"type": "flatten"}]})",
                                "net.json", {.input = Shape{32, 32, 3}, .classes = 10});
            }),
            "[net.json] expected samples of shape [28, 28, 1]; the data set has [32, 32, 3]");
}

TEST(NetworkJson, RefusesAnUnknownLayerWithTheNearest) {
  EXPECT_EQ(refusal(R"({"type": "flatten"}, {"type": "dens", "units": 3})"),
            "[net.json: layer 1 (dens)] expected \"type\" to be one of conv2d, dense, "
            "batch_normalization, relu, softmax, "
            "dropout, flatten, add, max_pool2d, "
            "average_pool2d, global_average_pooling2d, got \"dens\" (did you mean dense?)");
}

TEST(NetworkJson, RefusesAnUnknownKeyWithTheNearest) {
  EXPECT_EQ(refusal(R"({"type": "dropout", "rat": 0.5, "name": "drop"})"),
            "[net.json: layer 0 (dropout \"drop\")] expected one of the keys type, rate, "
            "activation, name, inputs, got "
            "\"rat\" (did you mean rate?)");
  EXPECT_EQ(input_error_of([] { network_from_json(R"({"input": [1], "layer": []})", "net.json"); }),
            "[net.json] expected \"layers\"; the key is missing");
  EXPECT_THAT(
      input_error_of(
          [] { network_from_json(R"({"input": [1], "layers": [], "optimizer": 1})", "net.json"); }),
      HasSubstr("[net.json] expected one of the keys name, input, layers, got \"optimizer\""));
}

TEST(NetworkJson, RefusesMissingKeysAndWrongTypes) {
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

TEST(NetworkJson, RefusesUnknownWordsInOptions) {
  EXPECT_THAT(refusal(R"({"type": "conv2d", "filters": 2, "kernel": 1, "padding": "full"})"),
              ::testing::AllOf(
                  HasSubstr("[net.json: layer 0 (conv2d)] expected a known name for \"padding\"; "),
                  HasSubstr("got \"full\"")));
  EXPECT_THAT(refusal(R"({"type": "conv2d", "filters": 2, "kernel": 1, "initializer": "xavier"})"),
              HasSubstr("expected glorot_uniform, he_normal, he_uniform or zeros, got \"xavier\""));
  EXPECT_THAT(refusal(R"({"type": "flatten", "activation": "rellu"})"),
              HasSubstr("expected \"activation\" to be one of none, relu, softmax, got \"rellu\" "
                        "(did you mean relu?)"));
}

TEST(NetworkJson, RefusesInputsThatAreNotThereYet) {
  EXPECT_THAT(
      refusal(R"({"type": "relu", "name": "stem"}, {"type": "add", "inputs": ["stme", "input"]})"),
      HasSubstr("[net.json: layer 1 (add)] expected \"inputs\" to name earlier layers, got "
                "\"stme\" (did you mean stem?)"));
  EXPECT_THAT(refusal(R"({"type": "relu", "name": "input"})"),
              HasSubstr("\"input\" is reserved for the input of the network"));
  EXPECT_THAT(refusal(R"({"type": "relu", "name": "a"}, {"type": "relu", "name": "a"})"),
              HasSubstr("[net.json: layer 1 (relu \"a\")]"));
}

TEST(NetworkJson, SaysWhichLayerOfTheFileDoesNotFit) {
  EXPECT_THAT(
      refusal(R"({"type": "relu"}, {"type": "dense", "units": 3})"),
      ::testing::AllOf(HasSubstr("[net.json: layer 1 (dense)] expected a valid layer; "),
                       HasSubstr("expected an input [features]"), HasSubstr("got [8, 8, 4]")));
}

TEST(NetworkJson, ShowsWhereTheTextIsNotJson) {
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

TEST(NetworkJson, RefusesDescriptionsThatNestWithoutRecursion) {
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

TEST(ReadNetwork, RefusesADirectory) {
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
  EXPECT_THAT(parameters, ElementsAre(225'034, 5290)) << "the first is cnn";
}

}  // namespace
}  // namespace lockstep::model
