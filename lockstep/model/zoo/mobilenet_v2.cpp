#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "lockstep/model/layers/layers.h"
#include "lockstep/model/zoo/zoo.h"

namespace lockstep::inline v0::zoo {
namespace {

using model::Network;
using model::NodeId;
using model::Shape;

/// Blocks with an equal number of filters; the first has the stride.
struct MobileNetStage {
  std::int64_t expansion;
  std::int64_t filters;
  int blocks;
  std::int64_t stride;
};

constexpr MobileNetStage kMobileNetStages[] = {{1, 16, 1, 1}, {6, 24, 2, 2}, {6, 32, 3, 2},
                                               {6, 64, 4, 2}, {6, 96, 3, 1}, {6, 160, 3, 2},
                                               {6, 320, 1, 1}};
constexpr std::int64_t kMobileNetFirst = 32;
constexpr std::int64_t kMobileNetLast = 1280;

/// The nearest multiple of 8, but not less than 90 % of `filters`, as in the authors' code.
std::int64_t multiple_of_8(double filters) {
  const std::int64_t rounded =
      std::max<std::int64_t>(8, static_cast<std::int64_t>(filters + 4) / 8 * 8);
  return static_cast<double>(rounded) < 0.9 * filters ? rounded + 8 : rounded;
}

// Builds the network; each function appends layers.
class MobileNetBuilder {
 public:
  explicit MobileNetBuilder(Network& network) : network_(network) {}

  void convolve(const std::string& name, std::int64_t filters, std::int64_t kernel,
                std::int64_t stride) {
    network_.add(model::Conv2D({.filters = filters,
                                .kernel = kernel,
                                .strides = stride,
                                .padding = model::Padding::symmetric,
                                .use_bias = false,
                                .initializer = model::Initializer::Kind::he_normal}),
                 {network_.last()}, name);
  }

  void normalize(const std::string& name) {
    network_.add(model::BatchNormalization({.momentum = 0.9f, .epsilon = 1e-5f}), {network_.last()},
                 name);
  }

  /// Expands the channels, convolves each by itself, and reduces them without an activation.
  void inverted_residual(const std::string& name, std::int64_t expansion, std::int64_t filters,
                         std::int64_t stride) {
    const NodeId input = network_.last();
    const std::int64_t channels = network_.shape(input).back();
    int part = 0;
    const auto next = [&] { return fmt::format("{}.conv.{}", name, part++); };
    if (expansion != 1) {
      const std::string expand = next();
      convolve(expand + ".0", expansion * channels, 1, 1);
      normalize(expand + ".1");
      network_.add(model::ReLU6());
    }
    const std::string depthwise = next();
    network_.add(model::DepthwiseConv2D({.kernel = 3,
                                         .strides = stride,
                                         .padding = model::Padding::symmetric,
                                         .use_bias = false,
                                         .initializer = model::Initializer::Kind::he_normal}),
                 {network_.last()}, depthwise + ".0");
    normalize(depthwise + ".1");
    network_.add(model::ReLU6());
    convolve(next(), filters, 1, 1);
    normalize(next());
    if (stride == 1 && channels == filters) network_.add(model::Add(), {network_.last(), input});
  }

 private:
  Network& network_;
};

}  // namespace

Network mobilenet_v2(Shape input, std::int64_t classes, const MobileNetOptions& options) {
  const bool is_small = options.stem.value_or(stem_for(input)) == Stem::cifar;
  Network network(std::move(input), options.width == 1
                                        ? "mobilenet_v2"
                                        : fmt::format("mobilenet_v2:{}", options.width));
  MobileNetBuilder builder(network);
  builder.convolve("features.0.0", multiple_of_8(kMobileNetFirst * options.width), 3,
                   is_small ? 1 : 2);
  builder.normalize("features.0.1");
  network.add(model::ReLU6());
  int place = 1;
  for (const MobileNetStage& stage : kMobileNetStages)
    for (int block = 0; block < stage.blocks; ++block, ++place) {
      const bool keeps_size = block > 0 || (is_small && place == 2);
      builder.inverted_residual(fmt::format("features.{}", place), stage.expansion,
                                multiple_of_8(static_cast<double>(stage.filters) * options.width),
                                keeps_size ? 1 : stage.stride);
    }
  builder.convolve(fmt::format("features.{}.0", place),
                   multiple_of_8(kMobileNetLast * std::max(1.0, options.width)), 1, 1);
  builder.normalize(fmt::format("features.{}.1", place));
  network.add(model::ReLU6());
  network.add(model::GlobalAveragePooling2D());
  network.add(model::Dropout({.rate = 0.2f}));
  network.add(model::Dense({.units = classes}), {network.last()}, "classifier.1");
  return network;
}

}  // namespace lockstep::inline v0::zoo
