#include "lockstep/model/zoo/zoo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "lockstep/model/layers/layers.h"
#include "tests/model/support/error_of.h"

namespace lockstep::zoo {
namespace {

using model::Initializer;
using model::input_error_of;
using model::Network;
using model::Shape;
using ::testing::HasSubstr;

TEST(Linear, IsOneDenseLayer) {
  const Network network = linear({28, 28, 1}, 10);
  EXPECT_EQ(network.parameters().element_count(), 7850u);
  EXPECT_EQ(network.output_shape(), Shape({10}));
  EXPECT_EQ(linear({4}, 3).parameters().element_count(), 15u) << "a vector needs no flattening";
}

TEST(Mlp, HasTheHiddenLayersAskedFor) {
  EXPECT_EQ(mlp({28, 28, 1}, 10).parameters().element_count(),
            784u * 128 + 128 + 128 * 128 + 128 + 1290);
  EXPECT_EQ(mlp({4}, 3, {7}).parameters().element_count(), 5u * 7 + 8 * 3);
  EXPECT_EQ(make("mlp:7", {4}, 3).parameters().element_count(), 5u * 7 + 8 * 3);
  EXPECT_EQ(make("mlp:10,20", {4}, 3).parameters().element_count(), 5u * 10 + 11 * 20 + 21 * 3);
}

TEST(Mlp, HasTheNameThatMakesIt) {
  for (const char* name : {"mlp", "mlp:7", "mlp:32,16"}) EXPECT_EQ(make(name, {4}, 3).name(), name);
  EXPECT_EQ(mlp({4}, 3, {10, 20}).name(), "mlp:10,20");
}

TEST(Cnn, HasTheSizeItPromises) {
  const Network network = cnn({28, 28, 1}, 10);
  EXPECT_EQ(network.parameters().element_count(), 225'034u);
  EXPECT_EQ(network.output_shape(), Shape({10}));
}

TEST(Cnn, NamesTheLayerForWhichAnImageIsTooSmall) {
  EXPECT_EQ(cnn({10, 10, 1}, 10).output_shape(), Shape({10}));
  EXPECT_THAT(
      input_error_of([] {
        cnn({9, 9, 1}, 10);
      }),
      HasSubstr(
          "[layer max_pool2d_1 (max_pool2d)] expected an image of at least 2x2, got [1, 1, 64]"));
  EXPECT_THAT(
      input_error_of([] { cnn({784}, 10); }),
      HasSubstr("[layer conv2d (conv2d)] expected an input [height, width, channels], got [784]"));
}

TEST(ResNet, HasThePublishedSizes) {
  EXPECT_EQ(resnet18({224, 224, 3}, 1000).parameters().element_count(), 11'689'512u);
  EXPECT_EQ(resnet34({224, 224, 3}, 1000).parameters().element_count(), 21'797'672u);
  const Network network = resnet50({224, 224, 3}, 1000);
  EXPECT_EQ(network.parameters().element_count(), 25'557'032u);
  EXPECT_EQ(network.buffers().element_count(), 53'120u)
      << "a moving mean and variance per normalized channel";
  EXPECT_EQ(network.output_shape(), Shape({1000}));
  EXPECT_EQ(resnet101({224, 224, 3}, 1000).parameters().element_count(), 44'549'160u);
  EXPECT_EQ(resnet152({224, 224, 3}, 1000).parameters().element_count(), 60'192'808u);
}

Shape shape_of(const Network& network, std::string_view layer) {
  const auto found = std::ranges::find(network.nodes(), layer, &model::Node::name);
  return found == network.nodes().end() ? Shape{} : found->output_shape;
}

TEST(ResNet, ShrinksTheImageAsPublished) {
  const Network network = resnet50({224, 224, 3}, 1000);
  EXPECT_EQ(shape_of(network, "conv1"), Shape({112, 112, 64}));
  EXPECT_EQ(shape_of(network, "max_pool2d"), Shape({56, 56, 64}));
  EXPECT_EQ(shape_of(network, "layer1.2.bn3"), Shape({56, 56, 256}));
  EXPECT_EQ(shape_of(network, "layer2.0.conv1"), Shape({56, 56, 128}))
      << "the stride is in the 3x3 convolution";
  EXPECT_EQ(shape_of(network, "layer2.0.conv2"), Shape({28, 28, 128}));
  EXPECT_EQ(shape_of(network, "layer4.2.bn3"), Shape({7, 7, 2048}));
}

TEST(ResNet, KeepsTheSizeOfSmallImagesInItsFirstStage) {
  const Network network = resnet18({32, 32, 3}, 10);
  EXPECT_EQ(shape_of(network, "conv1"), Shape({32, 32, 64}));
  EXPECT_EQ(shape_of(network, "max_pool2d"), Shape()) << "no pooling";
  EXPECT_EQ(shape_of(network, "layer4.1.bn2"), Shape({4, 4, 512}));
  EXPECT_EQ(network.parameters().element_count(), 11'173'962u);
  EXPECT_EQ(resnet50({32, 32, 3}, 10).parameters().element_count(), 23'520'842u);
  EXPECT_EQ(resnet101({32, 32, 3}, 10).parameters().element_count(), 42'512'970u);
  EXPECT_EQ(resnet152({32, 32, 3}, 10).parameters().element_count(), 58'156'618u);
}

TEST(ResNet, ChoosesItsStemByTheInputUnlessTold) {
  EXPECT_EQ(shape_of(resnet18({64, 64, 3}, 10), "conv1"), Shape({64, 64, 64}));
  EXPECT_EQ(shape_of(resnet18({65, 65, 3}, 10), "conv1"), Shape({33, 33, 64}));
  EXPECT_EQ(shape_of(resnet18({65, 65, 3}, 10, {.stem = Stem::cifar}), "conv1"),
            Shape({65, 65, 64}));
}

TEST(ResNet, WidthScalesEveryStage) {
  const Network network = resnet18({32, 32, 3}, 10, {.width = 8});
  EXPECT_EQ(shape_of(network, "layer1.0.conv1"), Shape({32, 32, 8}));
  EXPECT_EQ(shape_of(network, "layer4.1.conv2"), Shape({4, 4, 64}));
}

TEST(ResNet, CanStartEveryBlockAsTheIdentity) {
  const Network plain = resnet50({32, 32, 3}, 10);
  EXPECT_EQ(plain.parameters().find("layer1.0.bn3/gamma")->initializer.value, 1);
  const Network zero = resnet50({32, 32, 3}, 10, {.zero_last_gamma = true});
  EXPECT_EQ(zero.parameters().find("layer1.0.bn3/gamma")->initializer.value, 0);
  EXPECT_EQ(zero.parameters().find("layer1.0.bn2/gamma")->initializer.value, 1);
  EXPECT_EQ(zero.parameters().find("layer1.0.downsample.1/gamma")->initializer.value, 1);
}

TEST(ResNet, DecaysKernelsAlone) {
  const Network network = resnet18({32, 32, 3}, 10);
  for (const auto& entry : network.parameters().entries())
    EXPECT_EQ(entry.decay, entry.name.ends_with("/kernel")) << entry.name;
  EXPECT_EQ(network.parameters().find("conv1/kernel")->initializer.kind,
            Initializer::Kind::he_normal);
}

TEST(ResNet, NeedsAnImage) {
  EXPECT_EQ(input_error_of([] { resnet18({784}, 10); }),
            "[resnet18] expected an input [height, width, channels], got [784]");
}

TEST(ResNet, PutsItsDepthInTheThirdStage) {
  const Network medium = resnet101({224, 224, 3}, 1000);
  EXPECT_EQ(shape_of(medium, "layer3.22.bn3"), Shape({14, 14, 1024}));
  EXPECT_EQ(shape_of(medium, "layer3.23.bn3"), Shape());
  const Network deep = resnet152({224, 224, 3}, 1000);
  EXPECT_EQ(shape_of(deep, "layer2.7.bn3"), Shape({28, 28, 512}));
  EXPECT_EQ(shape_of(deep, "layer3.35.bn3"), Shape({14, 14, 1024}));
  EXPECT_EQ(shape_of(deep, "layer4.2.bn3"), Shape({7, 7, 2048}));
}

TEST(MobileNetV2, HasThePublishedSizesAndNames) {
  const Network network = mobilenet_v2({224, 224, 3}, 1000);
  EXPECT_EQ(network.parameters().element_count(), 3'504'872u);
  EXPECT_EQ(network.buffers().element_count(), 34'112u);
  EXPECT_EQ(shape_of(network, "features.0.0"), Shape({112, 112, 32}));
  EXPECT_EQ(shape_of(network, "features.1.conv.1"), Shape({112, 112, 16})) << "not expanded";
  EXPECT_EQ(shape_of(network, "features.2.conv.0.0"), Shape({112, 112, 96}));
  EXPECT_EQ(shape_of(network, "features.2.conv.3"), Shape({56, 56, 24}));
  EXPECT_EQ(shape_of(network, "features.17.conv.3"), Shape({7, 7, 320}));
  EXPECT_EQ(shape_of(network, "features.18.1"), Shape({7, 7, 1280}));
  EXPECT_EQ(network.parameters().find("features.3.conv.1.0/kernel")->shape, Shape({144, 3, 3, 1}));
  EXPECT_EQ(network.nodes().back().name, "classifier.1");
  EXPECT_EQ(std::ranges::count(network.nodes(), "add",
                               [](const model::Node& node) { return node.layer->kind(); }),
            10);
}

TEST(MobileNetV2, KeepsTheSizeOfSmallImagesInItsFirstStages) {
  const Network network = mobilenet_v2({32, 32, 3}, 10);
  EXPECT_EQ(shape_of(network, "features.3.conv.3"), Shape({32, 32, 24}));
  EXPECT_EQ(shape_of(network, "features.18.0"), Shape({4, 4, 1280}));
}

TEST(MobileNetV2, HasTheWidthAskedFor) {
  const Network network = make("mobilenet_v2:0.5", {224, 224, 3}, 1000);
  EXPECT_EQ(network.name(), "mobilenet_v2:0.5");
  EXPECT_EQ(network.parameters().element_count(), 1'968'680u);
  EXPECT_EQ(shape_of(make("mobilenet_v2:1.4", {96, 96, 3}, 10), "features.18.0"),
            Shape({3, 3, 1792}));
  for (const char* name : {"mobilenet_v2:", "mobilenet_v2:0", "mobilenet_v2:nan", "mobilenet_v2:17",
                           "mobilenet_v2:1x"})
    EXPECT_EQ(input_error_of([&] {
                make(name, {32, 32, 3}, 10);
              }),
              std::string("[model] expected a factor on the number of filters, above 0 and up to "
                          "16, such as mobilenet_v2:0.5, got \"") +
                  name + "\"");
  EXPECT_THAT(input_error_of([] { mobilenet_v2({784}, 10); }),
              HasSubstr("expected an input [height, width, channels], got [784]"));
}

const DataInput kTable[] = {
    {{.name = "features", .shape = {5}}},
    {{.name = "city", .shape = {}, .type = ElementType::int32}, 100},
    {{.name = "city x color", .shape = {}, .type = ElementType::int32}, 1000}};

TEST(WideDeep, AddsALinearModelAndAnMlpOfAllInputs) {
  const Network network = make("wide_deep:16x7,embedding=4", kTable, 3);
  EXPECT_EQ(network.name(), "wide_deep:16x7,embedding=4");
  ASSERT_EQ(network.inputs().size(), 3u);
  EXPECT_EQ(network.output_shape(), Shape({3}));
  EXPECT_EQ(shape_of(network, "concatenate"), Shape({5 + 4 + 4}));
  EXPECT_EQ(network.nodes().back().inputs.size(), 4u);
  EXPECT_EQ(network.parameters().find("wide_city x color/embeddings")->shape, Shape({1000, 3}));
  EXPECT_EQ(network.parameters().element_count(),
            (5u + 100 + 1000) * 3 + (100 + 1000) * 4 + 14 * 16 + 17 * 7 + 8 * 3);
  network.check_complete();
  EXPECT_EQ(make("wide_deep", kTable, 3).name(), "wide_deep");
  EXPECT_EQ(make("wide_deep:embedding=4", kTable, 3).name(), "wide_deep:128x128,embedding=4");
}

TEST(WideDeep, ReadsFloatsAloneOrOneCategory) {
  EXPECT_EQ(make("wide_deep:7", {4}, 3).parameters().element_count(), 4u * 3 + 5 * 7 + 8 * 3);
  const Network network = wide_deep(std::span(kTable).subspan(1, 1), 3, {.hidden = {}});
  EXPECT_EQ(network.parameters().element_count(), 100u * 3 + 100 * 8 + 9 * 3);
}

TEST(WideDeep, RefusesOtherInputsAndOptions) {
  const DataInput words[] = {{{.name = "words", .shape = {7}, .type = ElementType::int32}, 9}};
  EXPECT_EQ(input_error_of([&] { wide_deep(words, 3); }),
            "[wide_deep] expected floats, or one number of a category per sample, got words [7]");
  for (const char* name : {"wide_deep:", "wide_deep:0", "wide_deep:8x",
                           "wide_deep:8,embedding=", "wide_deep:8,embedding=x", "wide_deep:8,8"})
    EXPECT_EQ(input_error_of([&] { make(name, kTable, 3); }),
              std::string("[model] expected sizes of hidden layers and of embeddings, such as "
                          "wide_deep:256x128,embedding=16, got \"") +
                  name + "\"");
}

TEST(Lstm, ReadsPositionsOfFeatures) {
  const Network network = make("lstm:3x16", {20, 5}, 4);
  EXPECT_EQ(network.name(), "lstm:3x16");
  EXPECT_EQ(network.output_shape(), Shape({4}));
  EXPECT_EQ(shape_of(network, "lstm_1"), Shape({20, 16}));
  EXPECT_EQ(shape_of(network, "lstm_2"), Shape({16}));
  EXPECT_EQ(network.parameters().element_count(),
            4u * 16 * (5 + 16 + 1) + 2 * 4 * 16 * (16 + 16 + 1) + 17 * 4);
  EXPECT_EQ(shape_of(make("lstm", {28, 28, 3}, 10), "reshape"), Shape({28, 28 * 3}))
      << "a row of an image is a position";
  EXPECT_EQ(make("lstm:1x8:features", {20, 5}, 0).output_shape(), Shape({8}));
}

TEST(Lstm, ReadsNumbersThroughAnEmbedding) {
  const DataInput words[] = {{{.name = "words", .shape = {7}, .type = ElementType::int32}, 100}};
  const Network network = make("lstm:1x16,embedding=8", words, 4);
  EXPECT_EQ(network.name(), "lstm:1x16,embedding=8");
  EXPECT_EQ(network.inputs().front().name, "words");
  EXPECT_EQ(network.parameters().find("embedding/embeddings")->shape, Shape({100, 8}));
  EXPECT_EQ(network.parameters().element_count(), 100u * 8 + 4 * 16 * (8 + 16 + 1) + 17 * 4);
  EXPECT_EQ(make("lstm", words, 4).name(), "lstm");
  EXPECT_EQ(make("lstm:embedding=8", words, 4).name(), "lstm:2x128,embedding=8");
}

TEST(Lstm, RefusesOtherInputsAndOptions) {
  EXPECT_EQ(input_error_of([] { make("lstm", {7}, 3); }),
            "[lstm] expected floats [positions, features], or numbers [positions] of categories, "
            "got features [7]");
  const DataInput unknown{{.name = "words", .shape = {7}, .type = ElementType::int32}};
  EXPECT_EQ(input_error_of([&] { lstm(unknown, 3); }),
            "[lstm] expected floats [positions, features], or numbers [positions] of categories, "
            "got words [7] of unknown categories");
  for (const char* name : {"lstm:", "lstm:2", "lstm:0x8", "lstm:2x8x8", "lstm:2x8,embedding=0"})
    EXPECT_EQ(input_error_of([&] {
                make(name, {7, 2}, 3);
              }),
              std::string("[model] expected a number of layers, their units and the dimension of "
                          "the embedding, such as lstm:2x256,embedding=64, got \"") +
                  name + "\"");
}

TEST(Make, RefusesSeveralInputsForANetworkThatReadsOne) {
  EXPECT_EQ(input_error_of([] { make("mlp", kTable, 3); }),
            "[model] expected wide_deep or a FILE.json for data with several inputs, or one of "
            "them or lstm for data with indices, got \"mlp\" for features, city, city x color");
  EXPECT_EQ(make("mlp", std::span(kTable).first(1), 3).name(), "mlp");
}

TEST(FastCifar, HasTheSizeItPromises) {
  const Network network = fast_cifar({32, 32, 3}, 10);
  EXPECT_EQ(network.parameters().element_count(), 1'972'802u);
  EXPECT_EQ(network.output_shape(), Shape({10}));
  EXPECT_EQ(shape_of(network, "conv2d"), Shape({31, 31, 24}));
  EXPECT_EQ(shape_of(network, "conv2d_2"), Shape({15, 15, 64}));
  EXPECT_EQ(shape_of(network, "conv2d_6"), Shape({3, 3, 256}));
  EXPECT_EQ(shape_of(network, "flatten"), Shape({256})) << "one value a channel is left";
}

TEST(FastCifar, TakesImagesOfOtherSizesAndWidths) {
  EXPECT_EQ(shape_of(fast_cifar({64, 48, 3}, 10), "flatten"), Shape({256}));
  EXPECT_EQ(shape_of(fast_cifar({32, 32, 3}, 10, {.width = 8}), "flatten"), Shape({32}));
  EXPECT_EQ(fast_cifar({16, 16, 1}, 10).output_shape(), Shape({10}));
  EXPECT_THAT(input_error_of([] {
                fast_cifar({8, 8, 3}, 10);
              }),
              HasSubstr("expected an image of at least 2x2"));
}

TEST(Make, KnowsEveryName) {
  for (const std::string_view name : names()) {
    const Network network = make(name, {28, 28, 1}, 10);
    EXPECT_EQ(network.name(), name);
    EXPECT_EQ(network.output_shape(), Shape({10})) << name;
  }
}

TEST(Make, LeavesOutTheHeadOfFeatures) {
  for (const auto& [name, features] : {std::pair{"resnet18", 512},
                                       {"resnet50", 2048},
                                       {"fast_cifar", 256},
                                       {"cnn", 128},
                                       {"mlp", 128},
                                       {"mlp:10,20", 20}}) {
    const Network whole = make(name, {32, 32, 3}, 10);
    Network network = make(name + std::string(":features"), {32, 32, 3}, 0);
    EXPECT_EQ(network.name(), name + std::string(":features"));
    EXPECT_EQ(network.output_shape(), Shape({features})) << name;
    network.add(model::Dense({.units = 10}), {network.last()}, whole.nodes().back().name);
    ASSERT_EQ(network.parameters().entries().size(), whole.parameters().entries().size()) << name;
    for (std::size_t i = 0; i < whole.parameters().entries().size(); ++i)
      EXPECT_EQ(network.parameters().entries()[i].name, whole.parameters().entries()[i].name);
  }
  EXPECT_EQ(
      input_error_of([] { make("linear:features", {4}, 3); }),
      "[features] expected a network of layers with parameters one after another, the last of "
      "which is its head, got linear");
}

TEST(Make, RefusesAnUnknownNameWithTheNearest) {
  EXPECT_EQ(input_error_of([] {
              make("resnet-18", {28, 28, 1}, 10);
            }),
            "[model] expected one of linear, mlp, cnn, fast_cifar, resnet18, resnet34, resnet50, "
            "resnet101, resnet152, mobilenet_v2, wide_deep, lstm, or a FILE.json, got "
            "\"resnet-18\" (did you mean resnet18?)");
}

TEST(Make, RefusesSizesThatAreNone) {
  for (const char* name : {"mlp:", "mlp:0", "mlp:10,", "mlp:10,,10", "mlp:10x10", "mlp:-1"})
    EXPECT_EQ(
        input_error_of([&] { make(name, {4}, 3); }),
        std::string("[model] expected the sizes of hidden layers, such as mlp:128,128, got \"") +
            name + "\"");
}

}  // namespace
}  // namespace lockstep::zoo
