#include "lockstep/data/image/image.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::data {

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

Normalizer::Normalizer(const ChannelNormalization& normalization, int channels)
    : channels_(channels) {
  LOCKSTEP_CHECK(channels == 1 || channels == 3);
  const ChannelNormalization none;
  const ChannelNormalization& effective = normalization.channels == 0 ? none : normalization;
  for (std::size_t c = 0; c < static_cast<std::size_t>(channels); ++c) {
    LOCKSTEP_CHECK_OP(effective.deviation[c], >, 0.0f);
    for (std::size_t value = 0; value < table_[c].size(); ++value)
      table_[c][value] =
          normalized(static_cast<float>(value) / 255.0f, effective.mean[c], effective.deviation[c]);
  }
}

void Normalizer::normalize(std::span<const std::uint8_t> bytes, std::span<float> floats) const {
  LOCKSTEP_CHECK_OP(bytes.size(), ==, floats.size());
  const std::uint8_t* from = bytes.data();
  float* to = floats.data();
  const std::size_t count = bytes.size();
  if (channels_ == 1) {
    for (std::size_t i = 0; i < count; ++i) to[i] = table_[0][from[i]];
    return;
  }
  for (std::size_t i = 0; i + 2 < count; i += 3) {
    to[i] = table_[0][from[i]];
    to[i + 1] = table_[1][from[i + 1]];
    to[i + 2] = table_[2][from[i + 2]];
  }
}

PixelSink::PixelSink(std::span<std::uint8_t> output, int height, int width, int channels)
    : bytes_(output), height_(height), width_(width), channels_(channels) {
  LOCKSTEP_CHECK_OP(output.size(), ==, row_size() * height);
}

PixelSink::PixelSink(std::span<float> output, int height, int width, const Normalizer& normalizer,
                     std::vector<std::uint8_t>& row_memory)
    : floats_(output),
      normalizer_(&normalizer),
      height_(height),
      width_(width),
      channels_(normalizer.channels()) {
  LOCKSTEP_CHECK_OP(output.size(), ==, row_size() * height);
  if (row_memory.size() < row_size()) row_memory.resize(row_size());
  bytes_ = std::span(row_memory).first(row_size());
}

void PixelSink::cut_out(const Rectangle& hole, const std::array<std::uint8_t, 3>& fill) {
  hole_ = hole;
  fill_ = fill;
}

std::uint8_t* PixelSink::begin_row(int y) {
  return bytes_.data() + (normalizer_ == nullptr ? y * row_size() : 0);
}

void PixelSink::finish_row(int y) {
  const std::span<std::uint8_t> row(begin_row(y), row_size());
  if (y >= hole_.y && y < hole_.y + hole_.height) {
    for (int x = hole_.x; x < hole_.x + hole_.width; ++x)
      std::copy_n(fill_.data(), channels_, row.data() + std::ptrdiff_t{x} * channels_);
  }
  if (normalizer_ != nullptr)
    normalizer_->normalize(row, floats_.subspan(y * row_size(), row_size()));
}

namespace {

/// Copies `count` pixels of three bytes in reverse order. It moves four bytes at a time: the fourth
/// is overwritten by the next pixel. The pixels at the ends are copied without the fourth byte.
void mirror_colors(const std::uint8_t* from, int count, std::uint8_t* to) {
  from += std::ptrdiff_t{count - 1} * 3;
  std::memcpy(to, from, 3);
  for (int x = 1; x + 1 < count; ++x) {
    to += 3;
    from -= 3;
    std::memcpy(to, from, 4);
  }
  if (count > 1) std::memcpy(to + 3, from - 3, 3);
}

void copy_pixels(const std::uint8_t* from, int count, int channels, bool flip, std::uint8_t* to) {
  if (!flip) {
    std::copy_n(from, std::ptrdiff_t{count} * channels, to);
  } else if (channels == 3) {
    mirror_colors(from, count, to);
  } else {
    std::reverse_copy(from, from + count, to);
  }
}

}  // namespace

void copy_part(const ImageView& image, const Rectangle& part, bool flip, PixelSink& sink) {
  LOCKSTEP_CHECK_OP(part.width, ==, sink.width());
  LOCKSTEP_CHECK_OP(part.height, ==, sink.height());
  LOCKSTEP_CHECK_OP(image.channels, ==, sink.channels());
  const std::ptrdiff_t channels = image.channels;
  // The columns of the part that are inside the image, relative to the part.
  const int begin = std::clamp(-part.x, 0, part.width);
  const int end = std::clamp(image.width - part.x, begin, part.width);
  const int first = flip ? part.width - end : begin;
  for (int y = 0; y < part.height; ++y) {
    std::uint8_t* row = sink.begin_row(y);
    const int source = part.y + y;
    const bool inside = source >= 0 && source < image.height && begin < end;
    const std::ptrdiff_t black_until = inside ? first * channels : part.width * channels;
    std::fill_n(row, black_until, std::uint8_t{0});
    if (inside) {
      copy_pixels(image.at(part.x + begin, source), end - begin, image.channels, flip,
                  row + black_until);
      std::fill(row + (first + end - begin) * channels, row + part.width * channels,
                std::uint8_t{0});
    }
    sink.finish_row(y);
  }
}

}  // namespace lockstep::inline v0::data
