#include "data/image/image.h"

#include "device/error.h"

namespace lockstep::data {

ImageView view_of(std::span<const std::uint8_t> pixels, int height, int width, int channels) {
  const std::ptrdiff_t stride = std::ptrdiff_t{width} * channels;
  LOCKSTEP_CHECK_OP(pixels.size(), ==, static_cast<std::size_t>(stride * height));
  return {pixels.data(), height, width, channels, stride};
}

void Image::reshape(int height, int width, int channels) {
  const std::size_t bytes = kBefore + static_cast<std::size_t>(height) * width * channels;
  if (memory_.size() < bytes) memory_.resize(bytes);
  height_ = height;
  width_ = width;
  channels_ = channels;
}

}  // namespace lockstep::data
