// From bytes to the floats that networks take.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "device/pixels.h"

namespace lockstep::data {

/// Mean and deviation of the training images of CIFAR-10 and of ImageNet, as the field has them.
inline constexpr device::ChannelNormalization kCifar10Normalization = {
    .channels = 3, .mean = {0.4914f, 0.4822f, 0.4465f}, .deviation = {0.2470f, 0.2435f, 0.2616f}};
/// The same of ImageNet's.
inline constexpr device::ChannelNormalization kImageNetNormalization = {
    .channels = 3, .mean = {0.485f, 0.456f, 0.406f}, .deviation = {0.229f, 0.224f, 0.225f}};

/// device::pixels_to_features for all 256 values of each channel beforehand, by the very float operations that it
/// names, in their order: what it looks up has the bits of what it would compute.
class Normalizer {
 public:
  /// `channels` is 1 or 3; `deviation` must be positive.
  Normalizer(const device::ChannelNormalization& normalization, int channels);

  /// floats[i] from bytes[i], both [pixels, channels]. Spans of one size.
  void normalize(std::span<const std::uint8_t> bytes, std::span<float> floats) const;

  int channels() const { return channels_; }  ///< of each pixel

 private:
  int channels_;
  std::array<std::array<float, 256>, 3> table_;
};

}  // namespace lockstep::data
