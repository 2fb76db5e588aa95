// Networks that classify images: their sizes, shapes and names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "lockstep/model/network/network.h"
#include "lockstep/model/tensor/parameters.h"
#include "lockstep/model/zoo/zoo.h"
#include "tests/model/support/error_of.h"
#include "tests/model/zoo/support.h"

namespace lockstep::inline v0::zoo {
namespace {

using model::Initializer;
using model::input_error_of;
using model::Network;
using model::Shape;
using ::testing::HasSubstr;

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
                           "expected features, class_token, LAYERSxWIDTH[xHEADS], dropout= or "
                           "patch= as settings of vit, got \"4\""}});
}

TEST(Vit, ClassifiesByTheClassToken) {
  const Network network = make("vit:2x32,patch=8,class_token", {32, 48, 3}, 10);
  EXPECT_EQ(network.name(), "vit:2x32,patch=8,class_token");
  EXPECT_EQ(network.output_shape(), Shape({10}));
  EXPECT_EQ(shape_of(network, "pos_embed"), Shape({25, 32}));
  EXPECT_EQ(shape_of(network, "norm"), Shape({32}));
  EXPECT_EQ(network.parameters().element_count(),
            (64u * 3 + 1 + 24) * 32 + 2 * (12u * 32 * 32 + 13 * 32) + 2 * 32 + 33 * 10 + 32);
  EXPECT_EQ(make("vit:2x32,class_token,features", {32, 32, 3}, 0).output_shape(), Shape({32}));
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

}  // namespace
}  // namespace lockstep::inline v0::zoo
