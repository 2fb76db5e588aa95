#include "lockstep/model/zoo/zoo.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/base/spec.h"
#include "lockstep/model/layers/layers.h"
#include "lockstep/model/network_json.h"
#include "tests/model/support/error_of.h"

namespace lockstep::zoo {
namespace {

using model::Initializer;
using model::input_error_of;
using model::Network;
using model::Shape;
using ::testing::HasSubstr;

/// Expects that make() rejects each name with a message that contains its text.
void expect_refusals(std::span<const DataInput> inputs,
                     const std::vector<std::pair<std::string, std::string>>& cases) {
  for (const auto& [name, message] : cases)
    EXPECT_THAT(input_error_of([&, &name = name] { make(name, inputs, 3); }), HasSubstr(message))
        << name;
}

/// The name of the network without its head.
std::string features_name(const std::string& name) {
  return name + (name.find(':') == std::string::npos ? ":features" : ",features");
}

TEST(Linear, IsOneDenseLayer) {
  const Network network = linear({28, 28, 1}, 10);
  EXPECT_EQ(network.parameters().element_count(), 7850u);
  EXPECT_EQ(network.output_shape(), Shape({10}));
  EXPECT_EQ(linear({4}, 3).parameters().element_count(), 15u) << "a vector needs no flattening";
}

TEST(Mlp, HasTheRequestedHiddenLayers) {
  EXPECT_EQ(mlp({28, 28, 1}, 10).parameters().element_count(),
            784u * 128 + 128 + 128 * 128 + 128 + 1290);
  EXPECT_EQ(mlp({4}, 3, {7}).parameters().element_count(), 5u * 7 + 8 * 3);
  EXPECT_EQ(make("mlp:7", {4}, 3).parameters().element_count(), 5u * 7 + 8 * 3);
  EXPECT_EQ(make("mlp:10,20", {4}, 3).parameters().element_count(), 5u * 10 + 11 * 20 + 21 * 3);
}

TEST(Mlp, HasTheNameForMake) {
  for (const char* name : {"mlp", "mlp:7", "mlp:32,16"}) EXPECT_EQ(make(name, {4}, 3).name(), name);
  EXPECT_EQ(mlp({4}, 3, {10, 20}).name(), "mlp:10,20");
}

TEST(Cnn, HasTheDocumentedSize) {
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

TEST(ResNet, ChoosesItsStemByTheInputByDefault) {
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

TEST(ResNet, DecaysKernelsOnly) {
  const Network network = resnet18({32, 32, 3}, 10);
  for (const auto& entry : network.parameters().entries())
    EXPECT_EQ(entry.decay, entry.name.ends_with("/kernel")) << entry.name;
  EXPECT_EQ(network.parameters().find("conv1/kernel")->initializer.kind,
            Initializer::Kind::he_normal);
}

TEST(ResNet, RequiresAnImage) {
  EXPECT_EQ(input_error_of([] { resnet18({784}, 10); }),
            "[resnet18] expected an input [height, width, channels], got [784]");
}

TEST(ResNet, HasItsDepthInTheThirdStage) {
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

TEST(MobileNetV2, HasTheRequestedWidth) {
  const Network network = make("mobilenet_v2:0.5", {224, 224, 3}, 1000);
  EXPECT_EQ(network.name(), "mobilenet_v2:0.5");
  EXPECT_EQ(network.parameters().element_count(), 1'968'680u);
  EXPECT_EQ(shape_of(make("mobilenet_v2:1.4", {96, 96, 3}, 10), "features.18.0"),
            Shape({3, 3, 1792}));
  for (const char* name :
       {"mobilenet_v2:0", "mobilenet_v2:nan", "mobilenet_v2:17", "mobilenet_v2:1x"})
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

TEST(WideDeep, ReadsOnlyFloatsOrOneCategory) {
  EXPECT_EQ(make("wide_deep:7", {4}, 3).parameters().element_count(), 4u * 3 + 5 * 7 + 8 * 3);
  const Network network = wide_deep(std::span(kTable).subspan(1, 1), 3, {.hidden = {}});
  EXPECT_EQ(network.parameters().element_count(), 100u * 3 + 100 * 8 + 9 * 3);
}

TEST(WideDeep, RejectsOtherInputsAndOptions) {
  const DataInput words[] = {{{.name = "words", .shape = {7}, .type = ElementType::int32}, 9}};
  EXPECT_EQ(input_error_of([&] { wide_deep(words, 3); }),
            "[wide_deep] expected floats, or one number of a category per sample, got words [7]");
  expect_refusals(kTable, {{"wide_deep:", "expected a value before and after each colon"},
                           {"wide_deep:0", "expected UNITSxUNITS... in whole numbers above 0"},
                           {"wide_deep:8x", "expected UNITSxUNITS... in whole numbers above 0"},
                           {"wide_deep:8,embedding=", "expected embedding=VALUE"},
                           {"wide_deep:8,embedding=x",
                            "expected embedding to be a whole number of at least 1, got "
                            "\"embedding=x\""},
                           {"wide_deep:8,8",
                            "expected features, UNITSxUNITS... or embedding= as settings of "
                            "wide_deep, got \"8\""},
                           {"wide_deep:8embedding=8", "got \"8embedding\""}});
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
  EXPECT_EQ(make("lstm:1x8,features", {20, 5}, 0).output_shape(), Shape({8}));
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

TEST(Lstm, HasAnOutputAtEachPositionIfRequested) {
  const DataInput words[] = {{{.name = "words", .shape = {7}, .type = ElementType::int32}, 100}};
  const Network network = make("lstm:2x16,embedding=8,return_sequences", words, 100);
  EXPECT_EQ(network.name(), "lstm:2x16,embedding=8,return_sequences");
  EXPECT_EQ(network.output_shape(), Shape({7, 100}));
  EXPECT_EQ(network.parameters().element_count(),
            100u * 8 + 4 * 16 * (8 + 16 + 1) + 4 * 16 * (16 + 16 + 1) + 17 * 100);
  for (const char* name : {"lstm:return_sequences", "lstm:1x8,return_sequences"}) {
    EXPECT_EQ(make(name, words, 4).name(), name);
    EXPECT_EQ(make(name, {20, 5}, 4).output_shape(), Shape({20, 4})) << name;
  }
}

TEST(Lstm, ReadsTheSegmentsOfWordsAndOfFeatures) {
  const model::NetworkInput segments{.name = "segments", .shape = {7}, .type = ElementType::int32};
  const DataInput words[] = {{{.name = "words", .shape = {7}, .type = ElementType::int32}, 100},
                             {segments}};
  const DataInput floats[] = {{{.name = "values", .shape = {7, 2, 3}}}, {segments}};
  for (const std::span<const DataInput> inputs : {std::span(words), std::span(floats)}) {
    const Network network = make("lstm:2x16", inputs, 4);
    network.check_complete();
    EXPECT_EQ(network.output_shape(), Shape({4}));
    for (const char* name : {"lstm", "lstm_1"}) {
      const auto layer = std::ranges::find(network.nodes(), name, &model::Node::name);
      EXPECT_EQ(layer->inputs.back(), network.input("segments")) << name;
    }
    EXPECT_EQ(make("lstm:1x8,features", inputs, 0).output_shape(), Shape({8}));
  }
}

TEST(Lstm, RejectsOtherInputsAndOptions) {
  const std::string expected =
      "[lstm] expected floats [positions, features], or numbers [positions] of categories, and "
      "optionally the segments of the same positions, got ";
  EXPECT_EQ(input_error_of([] { make("lstm", {7}, 3); }), expected + "features [7]");
  const DataInput words{{.name = "words", .shape = {7}, .type = ElementType::int32}};
  EXPECT_EQ(input_error_of([&] { lstm(std::span(&words, 1), 3); }),
            expected + "words [7] of unknown categories");
  const DataInput longer[] = {{{.name = "values", .shape = {8, 2}}}, words};
  EXPECT_EQ(input_error_of([&] { lstm(longer, 3); }), expected + "values [8, 2], words [7]");
  EXPECT_EQ(input_error_of([&] { make("lstm", kTable, 3); }),
            expected + "features [5], city [], city x color []");
  const DataInput values[] = {{{.name = "values", .shape = {7, 2}}}};
  const char* sizes = "expected LAYERSxUNITS in whole numbers above 0, got \"lstm:";
  expect_refusals(values, {{"lstm:2", sizes},
                           {"lstm:0x8", sizes},
                           {"lstm:2x8x8", sizes},
                           {"lstm:2x8,embedding=0", "got \"embedding=0\""},
                           {"lstm:2x8,4x8", "got \"4x8\""},
                           {"lstm:2x8,", "expected a value before and after"},
                           {"lstm:2x8,sequences", "got \"sequences\""},
                           {"lstm:2x8return_sequences", sizes}});
}

TEST(Make, RejectsSeveralInputsForANetworkThatReadsOne) {
  EXPECT_EQ(input_error_of([] { make("mlp", kTable, 3); }),
            "[model] expected gpt, bert, minilm, lstm, seq2seq, caption, wide_deep or a FILE.json "
            "for data with several inputs, or with indices, got \"mlp\" for features, city, city x "
            "color");
  EXPECT_EQ(make("mlp", std::span(kTable).first(1), 3).name(), "mlp");
}

const DataInput kPair[] = {
    {{.name = "source", .shape = {7}, .type = ElementType::int32}, 20},
    {{.name = "source_segments", .shape = {7}, .type = ElementType::int32}, 0},
    {{.name = "tokens", .shape = {5}, .type = ElementType::int32}, 22}};

TEST(Seq2Seq, PredictsTheTokensOfTargets) {
  const Network network = make("seq2seq:2x8,embedding=6", kPair, 0);
  EXPECT_EQ(network.name(), "seq2seq:2x8,embedding=6");
  EXPECT_EQ(network.output_shape(), Shape({5, 22}));
  EXPECT_EQ(shape_of(network, "encoder.lstm.1"), Shape({7, 8}));
  EXPECT_EQ(shape_of(network, "decoder.initial.1"), Shape({16}));
  EXPECT_EQ(shape_of(network, "attention.weights"), Shape({5, 8}));
  EXPECT_EQ(network.parameters().element_count(),
            20u * 6 + 22 * 6 + 2 * (32 * (6 + 8 + 1) + 32 * (8 + 8 + 1)) + 2 * 16 * 9 + 8 * 8 +
                8 * 9 + 8 + 16 * 8 + 22 * 9);
  EXPECT_EQ(make("seq2seq", kPair, 0).name(), "seq2seq:1x256");
  EXPECT_EQ(make("seq2seq:1x8,dropout=0.5", kPair, 0).name(), "seq2seq:1x8,dropout=0.5");
  const DataInput without[] = {kPair[0], kPair[2]};
  EXPECT_EQ(make("seq2seq:1x8", without, 0).output_shape(), Shape({5, 22}));
}

TEST(Seq2Seq, RejectsOtherInputsAndOptions) {
  EXPECT_EQ(input_error_of([] { make("seq2seq", std::span(kPair).last(2), 0); }),
            "[seq2seq] expected source [S] and tokens [T] of vocabularies, and optionally "
            "source_segments [S], as in pairs of texts (--data text:FILE:source=A,target=B), got "
            "source_segments [7], tokens [5]");
  EXPECT_THAT(input_error_of([] { make("seq2seq", {7, 3}, 0); }), HasSubstr("got features [7, 3]"));
  const char* sizes = "expected LAYERSxUNITS in whole numbers above 0, got \"seq2seq:";
  expect_refusals(kPair, {{"seq2seq:2", sizes},
                          {"seq2seq:0x8", sizes},
                          {"seq2seq:1x8x2", sizes},
                          {"seq2seq:1x8,dropout=1", "expected dropout to be below 1"},
                          {"seq2seq:1x8,heads=2", "got \"heads\""},
                          {"seq2seq:1x8,dropout=0.1,dropout=0.2", "expected dropout= once"}});
}

TEST(Vit, ClassifiesAnImageByPatches) {
  const Network network = make("vit:2x32x4,dropout=0.1,patch=8", {32, 48, 3}, 10);
  EXPECT_EQ(network.name(), "vit:2x32x4,dropout=0.1,patch=8");
  EXPECT_EQ(network.output_shape(), Shape({10}));
  EXPECT_EQ(shape_of(network, "patch_embed.proj"), Shape({4, 6, 32}));
  EXPECT_EQ(shape_of(network, "blocks.1.attn.qkv"), Shape({24, 96}));
  EXPECT_EQ(shape_of(network, "fc_norm"), Shape({32}));
  EXPECT_EQ(network.parameters().element_count(),
            (64u * 3 + 1 + 24) * 32 + 2 * (12u * 32 * 32 + 13 * 32) + 2 * 32 + 33 * 10);
  EXPECT_EQ(make("vit:2x32,features", {32, 32, 3}, 0).output_shape(), Shape({32}));
}

TEST(Vit, ChoosesItsPatchSizeByTheInputByDefault) {
  EXPECT_EQ(shape_of(make("vit:1x32", {64, 64, 3}, 10), "pos_embed"), Shape({256, 32}));
  EXPECT_EQ(shape_of(make("vit:1x32", {96, 96, 3}, 10), "pos_embed"), Shape({36, 32}));
  EXPECT_EQ(input_error_of([] {
              make("vit:1x32", {30, 32, 3}, 10);
            }),
            "[vit] expected an image of whole 4x4 patches, got [30, 32, 3]");
  EXPECT_EQ(input_error_of([] { make("vit:1x32", {784}, 10); }),
            "[vit] expected an input [height, width, channels], got [784]");
  const DataInput image[] = {{{.name = "image", .shape = {32, 32, 3}}}};
  expect_refusals(image, {{"vit:1x32,patch=0", "expected patch to be a whole number of at least 1"},
                          {"vit:1x32,patch=", "expected patch=VALUE"},
                          {"vit:1x32,4",
                           "expected features, LAYERSxWIDTH[xHEADS], dropout= or patch= as "
                           "settings of vit, got \"4\""}});
}

TEST(FastCifar, HasTheDocumentedSize) {
  const Network network = fast_cifar({32, 32, 3}, 10);
  EXPECT_EQ(network.parameters().element_count(), 1'972'802u);
  EXPECT_EQ(network.output_shape(), Shape({10}));
  EXPECT_EQ(shape_of(network, "conv2d"), Shape({31, 31, 24}));
  EXPECT_EQ(shape_of(network, "conv2d_2"), Shape({15, 15, 64}));
  EXPECT_EQ(shape_of(network, "conv2d_6"), Shape({3, 3, 256}));
  EXPECT_EQ(shape_of(network, "flatten"), Shape({256})) << "one value per channel remains";
}

TEST(FastCifar, AcceptsOtherSizesAndWidths) {
  EXPECT_EQ(shape_of(fast_cifar({64, 48, 3}, 10), "flatten"), Shape({256}));
  EXPECT_EQ(shape_of(fast_cifar({32, 32, 3}, 10, {.width = 8}), "flatten"), Shape({32}));
  EXPECT_EQ(fast_cifar({16, 16, 1}, 10).output_shape(), Shape({10}));
  EXPECT_THAT(input_error_of([] {
                fast_cifar({8, 8, 3}, 10);
              }),
              HasSubstr("expected an image of at least 2x2"));
}

const DataInput kTokens[] = {{{.name = "tokens", .shape = {8}, .type = ElementType::int32}, 65},
                             {{.name = "segments", .shape = {8}, .type = ElementType::int32}, 0}};

const DataInput kCaptions[] = {{{.name = "image", .shape = {32, 32, 3}}},
                               {{.name = "tokens", .shape = {6}, .type = ElementType::int32}, 20}};

TEST(Make, AcceptsEveryName) {
  for (const std::string_view name : names()) {
    const bool reads_tokens = name == "gpt" || name == "bert" || name == "minilm";
    const Network network = name == "caption"   ? make(name, kCaptions, 20)
                            : name == "seq2seq" ? make(name, kPair, 20)
                            : reads_tokens      ? make(name, std::span(kTokens).first(1), 10)
                                                : make(name, {28, 28, 1}, 10);
    const bool is_transformer = reads_tokens || name == "vit";
    const char* const sizes = name == "minilm"    ? ":6x384"
                              : name == "caption" ? ":512"
                              : name == "seq2seq" ? ":1x256"
                              : is_transformer    ? ":12x768"
                                                  : "";
    EXPECT_EQ(network.name(), std::string(name) + sizes);
    EXPECT_EQ(network.output_shape(), name == "gpt"       ? Shape({8, 65})
                                      : name == "caption" ? Shape({6, 20})
                                      : name == "seq2seq" ? Shape({5, kPair[2].categories})
                                                          : Shape({10}))
        << name;
  }
}

TEST(Caption, ReadsTheImageBeforeTheTokens) {
  const Network network = make("caption:8", kCaptions, 20);
  EXPECT_EQ(network.name(), "caption:8");
  ASSERT_EQ(network.inputs().size(), 2u);
  network.check_complete();
  EXPECT_EQ(network.output_shape(), Shape({6, 20}));
  EXPECT_EQ(shape_of(network, "encoder.linear"), Shape({8}));
  EXPECT_EQ(shape_of(network, "concatenate"), Shape({7, 8}));
  EXPECT_EQ(shape_of(network, "decoder.lstm"), Shape({7, 8}));
  EXPECT_EQ(shape_of(network, "cropping1d"), Shape({6, 8}));
  const std::size_t cnn = make("cnn:features", {32, 32, 3}, 0).parameters().element_count();
  EXPECT_EQ(network.parameters().element_count(),
            cnn + (128u + 1 + 20) * 8 + 8 * 8 * 8 + 4 * 8 + 9 * 20);
}

TEST(Caption, KeepsTheNamesOfItsCnn) {
  for (const auto& [name, features] : {std::pair{"mobilenet_v2:0.5", 1280}, {"resnet18", 512}}) {
    const std::string whole = fmt::format("caption:16,dropout=0.3,cnn={}", quote_spec(name));
    const Network network = make(whole, kCaptions, 20);
    EXPECT_EQ(network.name(), whole);
    const Network cnn = make(features_name(name), {32, 32, 3}, 0);
    EXPECT_EQ(cnn.output_shape(), Shape({features}));
    for (const auto& entry : cnn.parameters().entries())
      EXPECT_NE(network.parameters().find(entry.name), nullptr) << entry.name;
    EXPECT_EQ(network.buffers().element_count(), cnn.buffers().element_count());
    EXPECT_EQ(network.parameters().element_count(), cnn.parameters().element_count() +
                                                        (features + 1u + 20) * 16 + 8 * 16 * 16 +
                                                        4 * 16 + 17 * 20);
    EXPECT_EQ(std::ranges::count(network.nodes(), "dropout",
                                 [](const model::Node& node) { return node.layer->kind(); }),
              2 + std::ranges::count(cnn.nodes(), "dropout",
                                     [](const model::Node& node) { return node.layer->kind(); }));
  }
}

TEST(Caption, ChoosesItsCnnByTheImageByDefault) {
  DataInput inputs[] = {kCaptions[1], {{.name = "photo", .shape = {65, 65, 3}}}};
  const Network network = make("caption:8", inputs, 20);
  network.check_complete();
  EXPECT_EQ(shape_of(network, "conv1"), Shape({33, 33, 64})) << "resnet18, of the second input";
  EXPECT_EQ(shape_of(network, "concatenate"), Shape({7, 8}));
  inputs[1].input.shape = {64, 64, 3};
  EXPECT_EQ(shape_of(make("caption:8", inputs, 20), "dense"), Shape({128})) << "cnn";
}

TEST(Caption, RejectsOtherInputsAndOptions) {
  const std::string expected =
      "[caption] expected an image [height, width, channels], and tokens of a vocabulary, one "
      "int32 for each position of its caption, got ";
  EXPECT_EQ(input_error_of([&] { make("caption", kTokens, 65); }),
            expected + "tokens [8], segments [8]");
  EXPECT_EQ(input_error_of([&] {
              make("caption", {28, 28, 1}, 10);
            }),
            expected + "features [28, 28, 1]");
  const DataInput unknown[] = {kCaptions[0],
                               {{.name = "tokens", .shape = {6}, .type = ElementType::int32}, 0}};
  EXPECT_EQ(input_error_of([&] { make("caption", unknown, 20); }),
            expected + "image [32, 32, 3], tokens [6]");
  expect_refusals(kCaptions, {{"caption:0", "expected WIDTH in whole numbers above 0"},
                              {"caption:8x8", "expected WIDTH in whole numbers above 0"},
                              {"caption:8,dropout=1", "expected dropout to be below 1"},
                              {"caption:8,cnn=", "expected cnn=VALUE"},
                              {"caption:8,cnn=mlp:8", "quotes around one with : or ="},
                              {"caption:8,9", "got \"9\""}});
  EXPECT_THAT(input_error_of([&] { make("caption:8,cnn=resnet-18", kCaptions, 20); }),
              HasSubstr("(did you mean resnet18?)"));
}

TEST(Gpt, HasTheSizeOfGpt2) {
  const DataInput words[] = {
      {{.name = "tokens", .shape = {1024}, .type = ElementType::int32}, 50257}};
  const Network network = make("gpt:12x768", words, 50257);
  EXPECT_EQ(network.parameters().element_count(), 124'439'808u);
  EXPECT_EQ(network.output_shape(), Shape({1024, 50257}));
  EXPECT_EQ(shape_of(network, "h.11.attn.c_attn"), Shape({1024, 3 * 768}));
  EXPECT_EQ(shape_of(network, "h.11.mlp.c_fc"), Shape({1024, 4 * 768}));
  EXPECT_EQ(shape_of(network, "h.12.ln_1"), Shape());
}

TEST(Gpt, HasTheRequestedSizes) {
  constexpr std::size_t kVocabulary = 65;
  for (const auto& [name, layers, width] : {std::tuple{"gpt:2x32", 2u, 32u},
                                            {"gpt:3x48x6", 3u, 48u},
                                            {"gpt:1x200,dropout=0.1", 1u, 200u}}) {
    const Network network = make(name, std::span(kTokens).first(1), 65);
    EXPECT_EQ(network.name(), name);
    EXPECT_EQ(network.parameters().element_count(),
              (kVocabulary + 8) * width + layers * (12 * width * width + 13 * width) + 2 * width);
    EXPECT_EQ(network.output_shape(), Shape({8, kVocabulary}));
  }
  const Network network = make("gpt:1x32,dropout=0.25", std::span(kTokens).first(1), 65);
  EXPECT_EQ(std::ranges::count(network.nodes(), "dropout",
                               [](const model::Node& node) { return node.layer->kind(); }),
            3);
}

TEST(Gpt, HasGatesIfRequested) {
  constexpr std::size_t kVocabulary = 65;
  for (const auto& [name, layers, width, units] :
       {std::tuple{"gpt:2x32,ffn=swiglu", 2u, 32u, 88u},
        {"gpt:1x48x6,dropout=0.1,ffn=swiglu", 1u, 48u, 128u}}) {
    const Network network = make(name, std::span(kTokens).first(1), 65);
    EXPECT_EQ(network.name(), name);
    EXPECT_EQ(shape_of(network, "h.0.mlp.c_gate"), Shape({8, units}));
    EXPECT_EQ(shape_of(network, "h.0.mlp.c_fc"), Shape({8, units}));
    EXPECT_EQ(network.parameters().element_count(),
              (kVocabulary + 8) * width +
                  layers * (4 * width * width + 9 * width + 3 * width * units + 2 * units) +
                  2 * width);
    const auto kinds = [&](const char* kind) {
      return std::ranges::count(network.nodes(), kind,
                                [](const model::Node& node) { return node.layer->kind(); });
    };
    EXPECT_EQ(kinds("silu"), layers);
    EXPECT_EQ(kinds("multiply"), layers);
    EXPECT_EQ(kinds("gelu"), 0);
  }
  EXPECT_EQ(make("gpt:2x32,ffn=gelu", std::span(kTokens).first(1), 65).name(), "gpt:2x32");
}

TEST(Gpt, IsInitializedLikeGpt2) {
  const Network network = make("gpt:8x32", std::span(kTokens).first(1), 65);
  const auto deviation = [&](const char* name) {
    const Initializer& initializer = network.parameters().find(name)->initializer;
    EXPECT_EQ(initializer.kind, Initializer::Kind::normal) << name;
    return initializer.value;
  };
  for (const char* name :
       {"wte/embeddings", "wpe/embeddings", "h.7.attn.c_attn/kernel", "h.7.mlp.c_fc/kernel"})
    EXPECT_EQ(deviation(name), 0.02f) << name;
  for (const char* name : {"h.7.attn.c_proj/kernel", "h.7.mlp.c_proj/kernel"})
    EXPECT_FLOAT_EQ(deviation(name), 0.005f) << name;  // 0.02 / sqrt(2 * 8)
}

TEST(Transformers, AttendWithinSegmentsIfTheDataHaveSome) {
  for (const char* name : {"gpt:2x32", "bert:2x32", "minilm:2x32"})
    for (const std::size_t count : {1, 2}) {
      const Network network = make(name, std::span(kTokens).first(count), 3);
      network.check_complete();
      const auto attention = std::ranges::find(network.nodes(), "attention", &model::Node::name);
      ASSERT_NE(attention, network.nodes().end());
      EXPECT_EQ(attention->inputs.back() == network.input(kTokens[count - 1].input.name),
                count == 2)
          << name;
    }
}

TEST(Transformers, RejectOtherInputsAndOptions) {
  for (const std::string kind : {"gpt", "bert", "minilm"}) {
    EXPECT_EQ(input_error_of([&] {
                make(kind, {28, 28, 1}, 10);
              }),
              "[" + kind +
                  "] expected tokens of a vocabulary, one int32 for each position of a text, and "
                  "optionally the segments of the same positions, got features [28, 28, 1]");
    for (const char* sizes : {":4", ":4x", ":0x32", ":4x32x", ":4x32x2x2", ":ax32"})
      expect_refusals(kTokens,
                      {{kind + sizes, "expected LAYERSxWIDTH[xHEADS] in whole numbers above 0"}});
    expect_refusals(kTokens,
                    {{kind + ":4x32,dropout=1", "expected dropout to be below 1"},
                     {kind + ":4x32,dropout=", "expected dropout=VALUE"},
                     {kind + ":4x32,rate=0", "got \"rate\""},
                     {kind + ":4x32,patch=4", "got \"patch\""},
                     {kind + ":4x32,ffn=relu",
                      kind == "gpt" ? "[model: ffn] expected gelu or swiglu" : "got \"ffn\""},
                     {kind + ":4x32,dropout=0.1,dropout=0.1", "expected dropout= once"}});
    EXPECT_THAT(input_error_of([&] { make(kind + ":1x32x5", kTokens, 3); }),
                HasSubstr("5 heads of the same size"));
  }
}

TEST(Bert, IsAClassifierWithTheNamesOfHuggingFace) {
  const Network network = make("bert:2x32x4", kTokens, 3);
  EXPECT_EQ(network.name(), "bert:2x32x4");
  EXPECT_EQ(network.output_shape(), Shape({3}));
  EXPECT_EQ(network.parameters().element_count(),
            (65u + 8 + 2 + 2) * 32 + 2 * (12u * 32 * 32 + 13 * 32) + 32 * 32 + 32 + 33 * 3);
  EXPECT_EQ(shape_of(network, "encoder.layer.1.attention.self.value"), Shape({8, 32}));
  EXPECT_EQ(shape_of(network, "encoder.layer.1.output.LayerNorm"), Shape({8, 32}));
  EXPECT_EQ(shape_of(network, "pooler.dense"), Shape({32}));
  const Network features = make("bert:2x32x4,features", kTokens, 0);
  EXPECT_EQ(features.inputs().size(), 2u);
  EXPECT_EQ(features.output_shape(), Shape({32}));
}

TEST(MiniLm, HasTheWeightsOfAllMiniLmL6) {
  const DataInput words[] = {
      {{.name = "tokens", .shape = {128}, .type = ElementType::int32}, 30522},
      {{.name = "segments", .shape = {128}, .type = ElementType::int32}, 0}};
  const Network network = make("minilm", words, 2);
  EXPECT_EQ(network.name(), "minilm:6x384");
  EXPECT_EQ(network.parameters().element_count(),
            (30522u + 512 + 2 + 2) * 384 + 6 * (12u * 384 * 384 + 13 * 384) + 385 * 2);
  EXPECT_EQ(network.parameters().find("embeddings.token_type_embeddings/embeddings")->shape,
            Shape({2, 384}));
  EXPECT_EQ(network.parameters().find("embeddings.position_embeddings/embeddings")->shape,
            Shape({512, 384}));
  EXPECT_THAT(model::network_to_json(network).value().dump(), HasSubstr(R"("heads":12,)"));
  EXPECT_EQ(make("minilm:features", words, 0).output_shape(), Shape({384}));
  const DataInput longer{{.name = "tokens", .shape = {513}, .type = ElementType::int32}, 65};
  EXPECT_THAT(input_error_of([&] { make("minilm:1x32", std::span(&longer, 1), 2); }),
              HasSubstr("expected at least 513 rows, one for each position, got 512"));
}

TEST(Make, OmitsTheHeadOfFeatures) {
  for (const auto& [name, features] : {std::pair{"resnet18", 512},
                                       {"resnet50", 2048},
                                       {"fast_cifar", 256},
                                       {"cnn", 128},
                                       {"mlp", 128},
                                       {"mlp:10,20", 20}}) {
    const Network whole = make(name, {32, 32, 3}, 10);
    Network network = make(features_name(name), {32, 32, 3}, 0);
    EXPECT_EQ(network.name(), features_name(name));
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

TEST(Make, RejectsAnUnknownNameWithTheNearest) {
  EXPECT_EQ(
      input_error_of([] {
        make("resnet-18", {28, 28, 1}, 10);
      }),
      "[model] expected one of linear, mlp, cnn, fast_cifar, resnet18, resnet34, resnet50, "
      "resnet101, resnet152, mobilenet_v2, wide_deep, lstm, gpt, bert, minilm, seq2seq, caption, "
      "vit, or a FILE.json, got "
      "\"resnet-18\" (did you mean resnet18?)");
  for (const auto& [name, kind] :
       {std::pair("linear:3", "linear"), std::pair("resnet18:2", "resnet18")})
    EXPECT_EQ(input_error_of([&] {
                make(name, {8, 8, 3}, 2);
              }),
              fmt::format("[model] expected features as settings of {}, got \"{}\"", kind,
                          std::string(name).substr(std::string(kind).size() + 1)));
}

TEST(Make, RejectsInvalidSizes) {
  const DataInput values[] = {{{.name = "values", .shape = {4}}}};
  for (const char* name : {"mlp:0", "mlp:10x10", "mlp:-1", "mlp:10,0"})
    expect_refusals(values, {{name, "[model] expected UNITS in whole numbers above 0, got"}});
  for (const char* name : {"mlp:", "mlp:10,", "mlp:10,,10"})
    expect_refusals(values, {{name, "[model] expected a value before and after each colon"}});
}

}  // namespace
}  // namespace lockstep::zoo
