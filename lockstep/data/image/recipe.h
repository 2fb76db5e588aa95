// Image recipes: the processing applied to every image of a data set.
#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lockstep/base/pixels.h"

namespace lockstep::inline v0::data {

/// The usual mean and deviation of the CIFAR-10 training images.
inline constexpr ChannelNormalization kCifar10Normalization = {
    .channels = 3, .mean = {0.4914f, 0.4822f, 0.4465f}, .deviation = {0.2470f, 0.2435f, 0.2616f}};
/// The usual mean and deviation of the ImageNet training images.
inline constexpr ChannelNormalization kImageNetNormalization = {
    .channels = 3, .mean = {0.485f, 0.456f, 0.406f}, .deviation = {0.229f, 0.224f, 0.225f}};

/// How an output pixel is computed from input pixels. Pixel centers are at half-integer
/// coordinates, as in tf.image.resize (TensorFlow 2) and Pillow.
enum class Filter {
  bilinear,     ///< the four nearest pixels at any scale: the default of tf.image.resize
  antialiased,  ///< bilinear, and averaged over the covered area when downscaling: as in Pillow and
                ///< torchvision
  area,         ///< mean of the covered area; when upscaling, the nearest pixel or a mix of two
};

/// The filter of this name: bilinear, antialiased or area. Throws Error (input) that lists these
/// names.
Filter parse_filter(std::string_view name);

/// Strength of color jitter: each factor is uniform in [max(0, 1 - strength), 1 + strength]. 0
/// disables it.
struct ColorJitterRange {
  double brightness = 0;  ///< maximum change of the factor
  double contrast = 0;    ///< maximum change of the factor
  double saturation = 0;  ///< maximum change of the factor

  /// Whether any factor may change.
  bool any() const { return brightness > 0 || contrast > 0 || saturation > 0; }
  bool operator==(const ColorJitterRange&) const = default;
};

/// The range of random resized crops.
struct ResizedCropRange {
  std::array<double, 2> area = {0.08, 1.0};          ///< as a fraction of the image's area
  std::array<double, 2> ratio = {3.0 / 4, 4.0 / 3};  ///< width / height

  bool operator==(const ResizedCropRange&) const = default;
};

/// The stored image, which must have the output's size.
struct AsStored {
  bool operator==(const AsStored&) const = default;
};

/// A crop of the output's size, at a random position of the image with a black border of `padding`
/// pixels.
struct PaddedCrop {
  int padding = 0;     ///< pixels of black border at each edge
  bool exact = false;  ///< the image must have the output's size, as with AsStored
  bool operator==(const PaddedCrop&) const = default;
};

/// A random crop, resized to the output's size.
struct RandomResizedCrop {
  ResizedCropRange range;  ///< area and aspect ratio
  bool operator==(const RandomResizedCrop&) const = default;
};

/// The image resized to a shorter side of `shorter` pixels, then its center crop of the output's
/// size.
struct ResizedCenter {
  /// Shorter side in pixels after resizing, before the crop; 0: the longer side of the output *
  /// 256 / 224.
  int shorter = 0;
  bool operator==(const ResizedCenter&) const = default;
};

/// The steps from an encoded or stored image to a network's input. Random choices depend only on
/// (seed, epoch, record id). A plain value whose fields may be changed.
struct ImageRecipe {
  /// Largest side in pixels: larger than any image, small enough for sums.
  static constexpr int kMaxSide = 1 << 15;

  std::string name = "none";  ///< the name that parse() accepts; stored in checkpoints
  int height = 0;             ///< output height in pixels
  int width = 0;              ///< output width in pixels
  int channels = 3;           ///< output channels: 1 or 3
  /// How the crop is chosen.
  std::variant<AsStored, PaddedCrop, RandomResizedCrop, ResizedCenter> geometry = {};
  Filter filter = Filter::bilinear;  ///< how it is resized
  /// Whether a JPEG is turned upright as its EXIF orientation says, before all else.
  bool exif = true;
  /// Whether a JPEG may be decoded at 1/2, 1/4 or 1/8 of its size if that is still large enough.
  /// Faster and of good quality, but not bit-identical to resizing alone.
  bool scaled_decoding = false;
  double flip = 0;               ///< probability of mirroring
  ColorJitterRange jitter = {};  ///< strength of color jitter
  /// Side of the square cut out of each image and filled with the mean of `normalization`.
  int cutout = 0;
  /// Probability of random erasing: a rectangle filled with that mean. Not with `cutout`.
  double erase = 0;
  ChannelNormalization normalization = {};  ///< for all channels, or for none

  /// The recipe `name`. `height`, `width` and `channels` set the output of "none", and `height` and
  /// `width` that of the recipes for ImageNet, which have 224 x 224 without them. Throws Error
  /// (input) for another size of the recipes for CIFAR-10, for other channels than 3 except for
  /// "none", and with a list of the names if there is no such recipe.
  ///   cifar10-train   padding 4, random crop 32, flip (He et al., "Deep residual learning", 2016);
  ///                   CIFAR-10's mean and deviation
  ///   cifar10-test    as stored; CIFAR-10's mean and deviation
  ///   imagenet-train  random resized crop, flip; ImageNet's mean and deviation
  ///   imagenet-test   shorter side 256 for an output of 224, antialiased, center crop: as
  ///                   torchvision's reference evaluates
  ///   none            as stored, value / 255
  ///
  /// Or steps, in this order, which set the size: "random-crop=160,flip,normalize=imagenet".
  ///   resize=N           the shorter side to N pixels, then a center crop
  ///   pad=N              N pixels of black border, then a random crop
  ///   random-crop=SIZE   random resized crop to SIZE, N or HxW
  ///   crop=SIZE          the size of the crop after resize or pad
  ///   scale=A+B, ratio=A+B  of random-crop: area as a fraction of the image's, and width / height
  ///   filter=NAME        bilinear (default of random-crop), antialiased (of resize), area
  ///   exif=off           JPEG images as stored, whatever their EXIF orientation
  ///   gray               one channel, as stored
  ///   flip[=P]           probability of mirroring, 0.5
  ///   color=S, color=B+C+S  jitter of brightness, contrast and saturation
  ///   normalize=NAME     imagenet, cifar10, or MEAN+DEVIATION of all channels
  ///   cutout=N, erase[=P]  a square, or with a probability of 0.5 a rectangle, of the mean
  /// for_test() drops the random steps, or uses the steps after a colon:
  /// "random-crop=160:resize=160". Throws Error (input) for an unknown step, and for an invalid
  /// value or order.
  static ImageRecipe parse(std::string_view name, int height = 0, int width = 0, int channels = 3);
  static std::vector<std::string> names();  ///< the names that parse() accepts
  /// Whether `text` begins with a step.
  static bool begins_with_step(std::string_view text);

  /// The recipe for evaluating a network that is trained with this recipe: nothing is random. A
  /// padded crop becomes the stored image (in a recipe of steps, the resized center), a random
  /// resized crop the resized center.
  ImageRecipe for_test() const;

  /// All fields, for checkpoints.
  nlohmann::json to_json() const;
  /// Reads what to_json() returned. Throws std::invalid_argument with a reason for anything else,
  /// and the errors of check().
  static ImageRecipe from_json(const nlohmann::json& json);

  /// "cifar10-train", followed by the differences from the recipe of that name: ", flip 0.25,
  /// cutout 8". Two recipes have the same description exactly if they are equal.
  std::string description() const;

  /// Throws Error (input) for invalid values, such as an empty output.
  void check() const;

  /// The shorter side that the resized center of `center` has with this output.
  int shorter_side(const ResizedCenter& center) const;

  bool operator==(const ImageRecipe&) const = default;

 private:
  static constexpr char kEvaluation = ':';  // between the steps for training and for evaluation

  // Parses steps. `text` becomes the name; the fields are those of the steps for training.
  static ImageRecipe parse_steps(std::string_view text);
  // The steps for evaluation that correspond to `steps`, which have no ':': the center `height` x
  // `width` of images whose shorter side is resized to `shorter`, and the steps that are not
  // random.
  static std::string evaluation_steps(std::string_view steps, int shorter, int height, int width);
};

}  // namespace lockstep::inline v0::data
