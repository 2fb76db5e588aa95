// A wide, shallow network that learns CIFAR-10 in few epochs.
#pragma once

#include <cstdint>

#include "model/network.h"

namespace lockstep::zoo {

/// Its sizes.
struct FastCifarOptions {
  std::int64_t width = 64;  ///< filters of the first block; the second and the third have four times as many
};

/// The shape of the published speed-run networks for CIFAR-10: Page, "How to train your ResNet" (myrtle.ai, 2018),
/// whose residual connections later ones dropped, and Jordan, "94% on CIFAR-10 in 3.29 seconds on a single GPU" (arXiv
/// 2404.00498), whose sizes these are. A 2x2 convolution to 24 channels, then three blocks of 64, 256 and 256 filters:
/// 3x3 convolution, 2x2 max pooling, normalization, activation, 3x3 convolution, normalization, activation; the largest
/// value of each channel; one dense layer. Unlike there the first convolution is learned as all others (theirs whitens
/// patches of the data), activations are ReLU (GELU), normalization has a scale, kernels begin He-normal (as partial
/// identities) and logits are not scaled. The moving statistics follow quickly (momentum 0.6), for trainings of a few
/// hundred steps.
///
/// `input` is [height, width, channels], of at least 16x16; 1,972,802 parameters for [32, 32, 3] and 10 classes.
model::Network fast_cifar(model::Shape input, std::int64_t classes, const FastCifarOptions& options = {});

}  // namespace lockstep::zoo
