#include "lockstep/model/network/network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/model/layer/custom_layer.h"
#include "lockstep/model/layers/layers.h"
#include "tests/model/support/error_of.h"

namespace lockstep::inline v0::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> names_of(std::span<const ParameterInfo> entries) {
  std::vector<std::string> names;
  for (const ParameterInfo& entry : entries) names.push_back(entry.name);
  return names;
}

TEST(Network, NamesItsLayersByKindAndNumber) {
  Network network({9, 9, 1});
  network.add(Conv2D({.filters = 2}));
  network.add(Conv2D({.filters = 2}), {network.last()}, "mine");
  network.add(Conv2D({.filters = 2}));
  network.add(Conv2D({.filters = 2}));
  std::vector<std::string> names;
  for (const Node& node : network.nodes()) names.push_back(node.name);
  EXPECT_THAT(names, ElementsAre("conv2d", "mine", "conv2d_1", "conv2d_2"));
}

TEST(Network, ComputesEveryShape) {
  Network network({8, 8, 1});
  EXPECT_EQ(network.shape(kInput), Shape({8, 8, 1}));
  const NodeId conv = network.add(Conv2D({.filters = 2}));
  const NodeId flat = network.add(Flatten());
  EXPECT_EQ(network.shape(conv), Shape({6, 6, 2}));
  EXPECT_EQ(network.shape(flat), Shape({72}));
  EXPECT_EQ(network.output_shape(), Shape({72}));
}

TEST(Network, KeepsParametersOfTheLastLayerFirst) {
  Network network({4});
  network.add(Dense({.units = 3}));
  network.add(BatchNormalization());
  network.add(Dense({.units = 2}));
  EXPECT_THAT(names_of(network.parameters().entries()),
              ElementsAre("dense_1/kernel", "dense_1/bias", "batch_normalization/gamma",
                          "batch_normalization/beta", "dense/kernel", "dense/bias"));
  EXPECT_THAT(
      names_of(network.buffers().entries()),
      ElementsAre("batch_normalization/moving_mean", "batch_normalization/moving_variance"));
  EXPECT_THAT(network.nodes()[0].parameters, ElementsAre(4, 5));
  EXPECT_THAT(network.nodes()[1].buffers, ElementsAre(0, 1));
}

TEST(Network, KeepsFrozenParametersAtTheEnd) {
  Network network({4});
  network.add(Dense({.units = 3}));
  network.add(BatchNormalization());
  network.add(Dense({.units = 2}));
  network.add(BatchNormalization());
  const std::vector<std::string> patterns = {"dense_1/kernel", "batch_normalization_1/*"};
  network.freeze(patterns);
  EXPECT_THAT(names_of(network.parameters().entries()),
              ElementsAre("dense_1/bias", "batch_normalization/gamma", "batch_normalization/beta",
                          "dense/kernel", "dense/bias", "batch_normalization_1/gamma",
                          "batch_normalization_1/beta", "dense_1/kernel"));
  EXPECT_THAT(network.nodes()[2].parameters, ElementsAre(7, 0));
  EXPECT_EQ(network.trained().entries().size(), 5U);
  EXPECT_EQ(network.trained().flat_size(), network.parameters().entries()[5].offset);
  EXPECT_EQ(network.buffers().entries()[2].name, "batch_normalization_1/moving_mean");
  EXPECT_EQ(network.changing_buffers(), network.buffers().entries()[2].offset);
  EXPECT_THAT(network.nodes()[3].buffers, ElementsAre(2, 3));
  EXPECT_TRUE(network.is_frozen(network.nodes()[3]));
  EXPECT_FALSE(network.is_frozen(network.nodes()[2]));
  EXPECT_THAT(network.summary(), ::testing::ContainsRegex("trained +23\n"));
}

TEST(Network, StoresASharedParameterOnce) {
  const auto tied = [](bool use_bias) {
    Network network({{.name = "words", .shape = {4}, .type = ElementType::int32}});
    network.add(Embedding({.vocabulary = 6, .dimension = 3}));
    network.add(Dense({.units = 3}));
    network.add(TiedDense({.to = "embedding", .use_bias = use_bias}));
    return network;
  };
  Network network = tied(true);
  EXPECT_THAT(names_of(network.parameters().entries()),
              ElementsAre("tied_dense/bias", "dense/kernel", "dense/bias", "embedding/embeddings"));
  EXPECT_THAT(network.nodes()[2].parameters, ElementsAre(3, 0));
  EXPECT_THAT(network.nodes()[2].own_parameters(), ElementsAre(0));
  EXPECT_THAT(network.nodes()[0].own_parameters(), ElementsAre(3));
  EXPECT_EQ(network.nodes()[2].owner, 0);
  EXPECT_THAT(network.summary(), ::testing::ContainsRegex("tied_dense +.4, 6. +6\n"));
  EXPECT_THAT(network.summary(), ::testing::ContainsRegex("total +36\n"));

  network.set_group("embedding/*", 0.5f, 0.25f);
  EXPECT_EQ(network.parameters().entries()[3].rate_factor, 0.5f);
  const std::vector<std::string> patterns = {"dense/kernel", "embedding/*"};
  network.freeze(patterns);
  EXPECT_THAT(names_of(network.parameters().entries()),
              ElementsAre("tied_dense/bias", "dense/bias", "dense/kernel", "embedding/embeddings"));
  EXPECT_THAT(network.nodes()[2].parameters, ElementsAre(3, 0));
  EXPECT_FALSE(network.is_frozen(network.nodes()[2]));
  Network without_bias = tied(false);
  EXPECT_THAT(without_bias.nodes()[2].own_parameters(), ElementsAre());
  without_bias.freeze(std::span(patterns).last(1));
  EXPECT_TRUE(without_bias.is_frozen(without_bias.nodes()[2]));
}

TEST(Network, RejectsADuplicateName) {
  Network network({4});
  network.add(ReLU(), {kInput}, "x");
  EXPECT_THAT(input_error_of([&] { network.add(ReLU(), {kInput}, "x"); }),
              HasSubstr("expected a unique name for each layer; \"x\" is already in use"));
  EXPECT_EQ(network.nodes().size(), 1u) << "the rejected layer is not added";
}

TEST(Network, RejectsUnknownInputs) {
  Network network({4});
  EXPECT_THAT(input_error_of([&] { network.add(ReLU(), {0}); }),
              HasSubstr("[layer re_lu (re_lu)] expected inputs that were added before it"));
  EXPECT_THAT(input_error_of([&] { network.add(ReLU(), {-2}); }),
              HasSubstr("expected inputs that were added before it"));
  EXPECT_THAT(input_error_of([&] {
                network.add(Flatten(), {kInput, kInput});
              }),
              HasSubstr("[layer flatten (flatten)] expected one input, got 2"));
  EXPECT_THAT(input_error_of([&] { network.add(Flatten(), std::vector<NodeId>{}); }),
              HasSubstr("expected one input, got 0"));
}

template <typename N>
concept TakesNames = requires(N network) {
  network.add(Add(), {"a", "b"});
}
|| requires(N network) { network.add(Add(), {"a", "b"}, "sum"); }
|| requires(N network) { network.add(Flatten(), {std::string("a")}); };
static_assert(!TakesNames<Network>, "two pointers would be a range of ids");

TEST(Network, AcceptsIdsAsInputs) {
  Network network({4});
  const NodeId first = network.add(Flatten(), {kInput});
  const NodeId second = network.add(Flatten(), {0}, "second");
  network.add(Add(), {first, second, kInput});
  EXPECT_THAT(network.nodes()[1].inputs, ElementsAre(0));
  EXPECT_THAT(network.nodes()[2].inputs, ElementsAre(0, 1, kInput));
}

TEST(Network, RejectsAnEmptyInput) {
  EXPECT_EQ(input_error_of([] { Network({}); }), "[network] expected at least one input, got none");
  EXPECT_EQ(input_error_of([] { Network(Shape{}); }),
            "[network] expected an input shape of positive extents, got []");
  EXPECT_EQ(input_error_of([] {
              Network({28, 0, 1});
            }),
            "[network] expected an input shape of positive extents, got [28, 0, 1]");
}

Network two_inputs() {
  return Network({{.name = "image", .shape = {2, 2, 1}}, {.name = "table", .shape = {3}}}, "two");
}

TEST(Network, HasNamedInputsAndOutputs) {
  Network network = two_inputs();
  EXPECT_EQ(network.input("image"), kInput);
  const NodeId table = network.input("table");
  EXPECT_EQ(table, -2);
  EXPECT_EQ(network.shape(table), Shape({3}));
  EXPECT_EQ(network.input_shape(), Shape({2, 2, 1}));

  const NodeId flat = network.add(Flatten());
  const NodeId dense = network.add(Dense({.units = 4}), {table});
  ASSERT_EQ(network.outputs().size(), 1U);
  EXPECT_EQ(network.outputs()[0].name, "dense") << "the last layer, unless others are named";
  EXPECT_EQ(network.outputs()[0].node, dense);
  EXPECT_THAT(input_error_of([&] { network.check_complete(); }),
              HasSubstr("[two] expected outputs that depend on every input: dense; none depends on "
                        "\"image\""));

  const NodeId sum = network.add(Add(), {flat, dense});
  network.output("sum", sum);
  network.output("columns", dense);
  network.add(ReLU());
  ASSERT_EQ(network.outputs().size(), 2U);
  EXPECT_EQ(network.outputs()[1].name, "columns");
  EXPECT_EQ(network.output_shape(), Shape({4}));
  network.check_complete();
  for (const char* row : {"input image ", "input table ", "output columns  "})
    EXPECT_THAT(network.summary(), HasSubstr(row));
}

TEST(Network, RejectsInputsAndOutputsThatDoNotFit) {
  EXPECT_THAT(input_error_of([] { two_inputs().input("tabel"); }),
              HasSubstr("[two] expected an input of the network: image, table, got \"tabel\" (did "
                        "you mean table?)"));
  EXPECT_THAT(input_error_of([] { two_inputs().add(ReLU(), {-3}); }),
              HasSubstr("expected inputs that were added before it"));
  EXPECT_THAT(input_error_of([] {
                Network({{.name = "a", .shape = {1}}, {.name = "a", .shape = {2}}});
              }),
              HasSubstr("expected a unique name for each input; \"a\" is already in use"));
  EXPECT_THAT(input_error_of([] {
                Network({{.name = "a", .shape = {1}},
                         {.name = "b", .shape = {2}, .type = ElementType::int64}});
              }),
              HasSubstr("[network input \"b\"] expected an input of type float32 or int32, got "
                        "int64"));
  Network network = two_inputs();
  const NodeId first = network.add(Flatten());
  const NodeId second = network.add(ReLU());
  network.output("first", first);
  EXPECT_THAT(input_error_of([&] { network.output("first", second); }),
              HasSubstr("expected a unique name and layer for each output"));
  EXPECT_THAT(input_error_of([&] { network.output("again", first); }),
              HasSubstr("\"again\" (layer flatten) after \"first\""));
  EXPECT_THAT(
      input_error_of([&] { network.output("raw", kInput); }),
      HasSubstr("expected a layer of the network for the output \"raw\", got node -1 of 2"));
}

// Otherwise its output would not depend on any input.
class Constant final : public CustomLayer {
 public:
  std::string kind() const override { return "constant"; }
  Shape build(BuildContext& /*context*/) const override { return {1}; }
  void forward(const Tensors& /*tensors*/, const PassContext& /*pass*/) const override {}
  void backward(const Tensors& /*tensors*/, const PassContext& /*pass*/) const override {}
};

TEST(Network, RejectsALayerWithoutInputs) {
  EXPECT_EQ(input_error_of([] { Network({4}).add(Constant(), std::vector<NodeId>{}); }),
            "[layer constant (constant)] expected at least one input, got none");
}

TEST(Network, PrintsASummary) {
  Network network({8, 8, 1});
  network.add(Conv2D({.filters = 2}));
  network.add(Flatten());
  const std::string summary = network.summary();
  EXPECT_THAT(summary, HasSubstr("conv2d"));
  EXPECT_THAT(summary, HasSubstr("[6, 6, 2]"));
  EXPECT_THAT(summary, ::testing::ContainsRegex("total +20"));
}

TEST(Shape, CountsAndPrints) {
  EXPECT_EQ(element_count({}), 1);
  EXPECT_EQ(element_count({2, 3, 4}), 24);
  EXPECT_EQ(to_string(Shape{28, 28, 1}), "[28, 28, 1]");
  EXPECT_EQ(to_string(Shape{}), "[]");
}

}  // namespace
}  // namespace lockstep::inline v0::model
