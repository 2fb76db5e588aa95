#include "data/image/pixel_sink.h"

#include <algorithm>

#include "device/error.h"

namespace lockstep::data {

PixelSink::PixelSink(std::span<std::uint8_t> output, int height, int width, int channels)
    : bytes_(output), height_(height), width_(width), channels_(channels) {
  LOCKSTEP_CHECK_OP(output.size(), ==, row_size() * height);
}

PixelSink::PixelSink(std::span<float> output, int height, int width, const Normalizer& normalizer,
                     std::vector<std::uint8_t>& row_memory)
    : floats_(output), normalizer_(&normalizer), height_(height), width_(width), channels_(normalizer.channels()) {
  LOCKSTEP_CHECK_OP(output.size(), ==, row_size() * height);
  if (row_memory.size() < row_size()) row_memory.resize(row_size());
  bytes_ = std::span(row_memory).first(row_size());
}

void PixelSink::cut_out(const Rectangle& hole, const std::array<std::uint8_t, 3>& fill) {
  hole_ = hole;
  fill_ = fill;
}

std::uint8_t* PixelSink::begin_row(int y) { return bytes_.data() + (normalizer_ == nullptr ? y * row_size() : 0); }

void PixelSink::finish_row(int y) {
  const std::span<std::uint8_t> row(begin_row(y), row_size());
  if (y >= hole_.y && y < hole_.y + hole_.height) {
    for (int x = hole_.x; x < hole_.x + hole_.width; ++x)
      std::copy_n(fill_.data(), channels_, row.data() + std::ptrdiff_t{x} * channels_);
  }
  if (normalizer_ != nullptr) normalizer_->normalize(row, floats_.subspan(y * row_size(), row_size()));
}

}  // namespace lockstep::data
