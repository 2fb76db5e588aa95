// Residual networks (He et al., "Deep residual learning for image recognition", CVPR 2016).
#pragma once

#include <cstdint>
#include <optional>

#include "model/network.h"

namespace lockstep::zoo {

/// How the network begins.
enum class Stem {
  cifar,     ///< a 3x3 convolution of stride 1: for inputs up to 64x64
  imagenet,  ///< a 7x7 convolution of stride 2, then 3x3 max pooling of stride 2
};

/// Which of the residual networks, and for which images.
struct ResNetOptions {
  std::int64_t width = 64;                  ///< filters of the first stage; each of the three later ones doubles them
  std::optional<Stem> stem = std::nullopt;  ///< by the input's size where not given: cifar up to 64x64
  bool zero_last_gamma = false;  ///< start every block as the identity (Goyal et al., arXiv 1706.02677, section 5.1)
};

/// Structure and names are torchvision's ("layer1.0.conv1"), so weights of either convert by renaming and transposing.
/// In blocks of three convolutions the 3x3 one carries the stride (the "v1.5" form). Convolutions have no bias and
/// begin He-normal over their inputs (torchvision: over their outputs; for most layers the two are equal). Batch
/// normalization: momentum 0.9, epsilon 1e-5. `input` is [height, width, channels]; for [224, 224, 3] and 1000
/// classes they have 11,689,512, 21,797,672, 25,557,032, 44,549,160 and 60,192,808 parameters.
model::Network resnet18(model::Shape input, std::int64_t classes, const ResNetOptions& options = {});
model::Network resnet34(model::Shape input, std::int64_t classes, const ResNetOptions& options = {});
model::Network resnet50(model::Shape input, std::int64_t classes, const ResNetOptions& options = {});
model::Network resnet101(model::Shape input, std::int64_t classes, const ResNetOptions& options = {});
model::Network resnet152(model::Shape input, std::int64_t classes, const ResNetOptions& options = {});

}  // namespace lockstep::zoo
