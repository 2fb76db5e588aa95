#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/model/layers/layers.h"
#include "lockstep/model/zoo/zoo.h"

namespace lockstep::inline v0::zoo {
namespace {

using model::Network;
using model::NodeId;
using model::Shape;

enum class Block { basic, bottleneck };

constexpr std::int64_t kBottleneckExpansion = 4;
constexpr std::int64_t kLargestCifarInput = 64;

struct Design {
  const char* name;
  Block block;
  std::array<int, 4> blocks_per_stage;
};

// Adds the layers of a residual network; each function returns its last node.
class Builder {
 public:
  Builder(Network& network, const ResNetOptions& options) : network_(network), options_(options) {}

  NodeId stem(Stem form) {
    const bool imagenet = form == Stem::imagenet;
    convolve(model::kInput, "conv1", options_.width, imagenet ? 7 : 3, imagenet ? 2 : 1);
    normalize("bn1");
    const NodeId end = network_.add(model::ReLU());
    return imagenet ? network_.add(model::MaxPool2D(
                          {.pool = 3, .strides = 2, .padding = model::Padding::symmetric}))
                    : end;
  }

  NodeId basic_block(NodeId input, const std::string& name, std::int64_t filters,
                     std::int64_t stride) {
    convolve(input, name + ".conv1", filters, 3, stride);
    normalize(name + ".bn1");
    const NodeId middle = network_.add(model::ReLU());
    convolve(middle, name + ".conv2", filters, 3, 1);
    const NodeId residual = normalize(name + ".bn2", options_.zero_last_gamma);
    return join(residual, shortcut(input, name, filters, stride));
  }

  NodeId bottleneck_block(NodeId input, const std::string& name, std::int64_t filters,
                          std::int64_t stride) {
    convolve(input, name + ".conv1", filters, 1, 1);
    normalize(name + ".bn1");
    const NodeId reduced = network_.add(model::ReLU());
    convolve(reduced, name + ".conv2", filters, 3, stride);
    normalize(name + ".bn2");
    const NodeId middle = network_.add(model::ReLU());
    convolve(middle, name + ".conv3", kBottleneckExpansion * filters, 1, 1);
    const NodeId residual = normalize(name + ".bn3", options_.zero_last_gamma);
    return join(residual, shortcut(input, name, kBottleneckExpansion * filters, stride));
  }

 private:
  NodeId convolve(NodeId input, std::string name, std::int64_t filters, std::int64_t kernel,
                  std::int64_t stride) {
    return network_.add(model::Conv2D({.filters = filters,
                                       .kernel = kernel,
                                       .strides = stride,
                                       .padding = model::Padding::symmetric,
                                       .use_bias = false,
                                       .initializer = model::Initializer::Kind::he_normal}),
                        {input}, std::move(name));
  }

  NodeId normalize(std::string name, bool zero_gamma = false) {
    return network_.add(
        model::BatchNormalization(
            {.momentum = 0.9f, .epsilon = 1e-5f, .initial_gamma = zero_gamma ? 0.0f : 1.0f}),
        {network_.last()}, std::move(name));
  }

  // The block's input, or its projection if extents or channels change.
  NodeId shortcut(NodeId input, const std::string& name, std::int64_t filters,
                  std::int64_t stride) {
    if (stride == 1 && network_.shape(input).back() == filters) return input;
    convolve(input, name + ".downsample.0", filters, 1, stride);
    return normalize(name + ".downsample.1");
  }

  NodeId join(NodeId residual, NodeId shortcut) {
    network_.add(model::Add(), {residual, shortcut});
    return network_.add(model::ReLU());
  }

  Network& network_;
  const ResNetOptions& options_;
};

Network build(const Design& design, Shape input, std::int64_t classes,
              const ResNetOptions& options) {
  if (input.size() != 3)
    throw Error(ErrorCategory::input, design.name, "expected an input [height, width, channels]",
                fmt::format("got {}", model::to_string(input)));
  const Stem stem = options.stem.value_or(stem_for(input));
  Network network(std::move(input), design.name);
  Builder builder(network, options);
  NodeId end = builder.stem(stem);
  std::int64_t filters = options.width;
  for (std::size_t stage = 0; stage < design.blocks_per_stage.size(); ++stage, filters *= 2)
    for (int block = 0; block < design.blocks_per_stage[stage]; ++block) {
      const std::string name = fmt::format("layer{}.{}", stage + 1, block);
      const std::int64_t stride = stage > 0 && block == 0 ? 2 : 1;
      end = design.block == Block::basic ? builder.basic_block(end, name, filters, stride)
                                         : builder.bottleneck_block(end, name, filters, stride);
    }
  network.add(model::GlobalAveragePooling2D());
  network.add(model::Dense({.units = classes}), {network.last()}, "fc");
  return network;
}

}  // namespace

Stem stem_for(const Shape& input) {
  const bool is_small = input.size() == 3 && std::max(input[0], input[1]) <= kLargestCifarInput;
  return is_small ? Stem::cifar : Stem::imagenet;
}

Network resnet18(Shape input, std::int64_t classes, const ResNetOptions& options) {
  return build({"resnet18", Block::basic, {2, 2, 2, 2}}, std::move(input), classes, options);
}

Network resnet34(Shape input, std::int64_t classes, const ResNetOptions& options) {
  return build({"resnet34", Block::basic, {3, 4, 6, 3}}, std::move(input), classes, options);
}

Network resnet50(Shape input, std::int64_t classes, const ResNetOptions& options) {
  return build({"resnet50", Block::bottleneck, {3, 4, 6, 3}}, std::move(input), classes, options);
}

Network resnet101(Shape input, std::int64_t classes, const ResNetOptions& options) {
  return build({"resnet101", Block::bottleneck, {3, 4, 23, 3}}, std::move(input), classes, options);
}

Network resnet152(Shape input, std::int64_t classes, const ResNetOptions& options) {
  return build({"resnet152", Block::bottleneck, {3, 8, 36, 3}}, std::move(input), classes, options);
}

}  // namespace lockstep::inline v0::zoo
