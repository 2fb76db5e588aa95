// What is done to every image of a data set, by name or field by field.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lockstep/data/image/augmentation.h"
#include "lockstep/data/image/pixel_sink.h"
#include "lockstep/data/image/resize.h"

namespace lockstep::data {

/// The image as it is stored; it must have the output's size.
struct AsStored {
  bool operator==(const AsStored&) const = default;
};

/// A part of the output's size, at a random place of the image with a black border of `padding` pixels.
struct PaddedCrop {
  int padding = 0;     ///< pixels of black border at each edge
  bool exact = false;  ///< the image must have the output's size, as AsStored wants it
  bool operator==(const PaddedCrop&) const = default;
};

/// A random part, resized to the output's size.
struct RandomResizedCrop {
  ResizedCropRange range;  ///< of area and aspect ratio
  bool operator==(const RandomResizedCrop&) const = default;
};

/// The image resized so that its shorter side has `shorter` pixels, then the middle of the output's size.
struct ResizedCenter {
  int shorter = 0;  ///< what the shorter edge becomes, in pixels, before the crop
  bool operator==(const ResizedCenter&) const = default;
};

/// Steps from an encoded or stored image to a network's input. Random choices depend on (seed, epoch, record id) alone.
/// A value; change what you like.
struct ImageRecipe {
  std::string name = "none";  ///< by which find() knows it, and checkpoints too
  int height = 0;             ///< of the output, and so are the other extents
  int width = 0;              ///< of what comes out, in pixels
  int channels = 3;           ///< of what comes out: 1 or 3
  std::variant<AsStored, PaddedCrop, RandomResizedCrop, ResizedCenter> geometry = {};  ///< how the part is chosen
  Filter filter = Filter::bilinear;                                                    ///< how it is resized
  /// Whether a JPEG may be decoded at 1/2, 1/4 or 1/8 where that is still large enough: faster, and a good reduction,
  /// but not to the bit what resizing alone gives.
  bool scaled_decoding = false;
  double flip = 0;               ///< share of samples that are mirrored
  ColorJitterRange jitter = {};  ///< how far colors are changed
  int cutout = 0;  ///< side of the square that is cut out of each image; it gets the mean of `normalization`
  ChannelNormalization normalization = {};  ///< for all channels, or none

  /// The recipe of that name; the output of "none" has the extents given here, the others know theirs. Throws Error
  /// (input) for any other name, with all of them.
  ///   cifar10-train   padding 4, random crop 32, flip (He et al., "Deep residual learning", 2016); CIFAR-10's mean
  ///   cifar10-test    as stored; CIFAR-10's mean and deviation
  ///   imagenet-train  random resized crop 224, flip; ImageNet's mean and deviation
  ///   imagenet-test   shorter side 256, antialiased, middle 224: as torchvision's reference evaluates
  ///   none            as stored, value / 255
  static ImageRecipe parse(std::string_view name, int height = 0, int width = 0, int channels = 3);
  static std::vector<std::string> names();  ///< the names that find() knows

  /// "cifar10-train", and what differs from the recipe of that name: ", flip 0.25, cutout 8". Equal recipes have equal
  /// texts, others have others.
  std::string description() const;

  /// Throws Error (input) for values that make no sense, such as an output without pixels.
  void check() const;

  bool operator==(const ImageRecipe&) const = default;
};

}  // namespace lockstep::data
