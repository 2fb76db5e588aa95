// What convolution and pooling share: a window that slides over height and width.
#pragma once

#include <cstdint>
#include <string_view>

#include "model/layer.h"

namespace lockstep::model {

/// Height and width; one number means both.
struct Extent2D {
  Extent2D(std::int64_t both)
      : height(both), width(both) {}  // NOLINT(google-explicit-constructor): `.kernel = 3` is the point
  Extent2D(std::int64_t h, std::int64_t w) : height(h), width(w) {}
  std::int64_t height;
  std::int64_t width;
};

/// valid: windows inside the input only. same: ceil(input / stride) outputs, zeros around, the odd one at the end (as
/// in TensorFlow). symmetric: the same number of zeros on both sides, (kernel - 1) / 2 rounded up (as in PyTorch's
/// ResNet).
enum class Padding { valid, same, symmetric };

Padding parse_padding(std::string_view name);

/// A window applied to an image: output extents and the zeros around the input.
struct WindowGeometry {
  std::int64_t height = 0, width = 0, channels = 0;
  std::int64_t kernel_height = 0, kernel_width = 0;
  std::int64_t stride_height = 0, stride_width = 0;
  std::int64_t output_height = 0, output_width = 0;
  std::int64_t pad_top = 0, pad_bottom = 0, pad_left = 0, pad_right = 0;
};

/// Refuses through `context` non-positive extents and windows larger than the padded input.
WindowGeometry window_geometry(const BuildContext& context, const Shape& input, Extent2D kernel, Extent2D strides,
                               Padding padding);

/// The same without checks, for shapes that build() has accepted.
WindowGeometry window_geometry(const Shape& input, Extent2D kernel, Extent2D strides, Padding padding);

}  // namespace lockstep::model
