// Shared by layers of images: a window that slides over height and width, and interpolation.
#pragma once

#include <cstdint>
#include <string_view>

#include "lockstep/model/layer/layer.h"

namespace lockstep::inline v0::model {

/// Height and width; one number means both.
struct Extent2D {
  /// Equal height and width: `.kernel = 3`.
  Extent2D(std::int64_t both)
      : height(both),
        width(both) {}  // NOLINT(google-explicit-constructor): `.kernel = 3` is the point
  Extent2D(std::int64_t h, std::int64_t w) : height(h), width(w) {}  ///< `h` rows and `w` columns
  std::int64_t height;                                               ///< rows
  std::int64_t width;                                                ///< columns
};

/// valid: windows inside the input only. same: ceil(input / stride) outputs, padded with zeros, the
/// extra zero at the end (as in TensorFlow). symmetric: the same number of zeros on both sides,
/// (kernel - 1) / 2 rounded up (as in PyTorch's ResNet).
enum class Padding { valid, same, symmetric };

Padding parse_padding(std::string_view name);  ///< throws Error (input) that lists the names
std::string_view to_string(Padding padding);   ///< the name that parse_padding() accepts

/// How an image is enlarged. nearest: repeats pixels. bilinear: a mean of the four nearest pixels,
/// weighted by the distance of their centers; positions beyond the edge have its values (Keras;
/// PyTorch with align_corners=False).
enum class Interpolation { nearest, bilinear };

Interpolation parse_interpolation(
    std::string_view name);  ///< throws Error (input), lists the names
std::string_view to_string(
    Interpolation interpolation);  ///< the name that parse_interpolation() accepts

/// A window applied to an image: output extents and the zeros around the input.
struct WindowGeometry {
  std::int64_t height = 0;           ///< input height in pixels
  std::int64_t width = 0;            ///< input width in pixels
  std::int64_t channels = 0;         ///< input channels
  std::int64_t kernel_height = 0;    ///< window height in pixels
  std::int64_t kernel_width = 0;     ///< window width in pixels
  std::int64_t stride_height = 0;    ///< vertical distance between windows in pixels
  std::int64_t stride_width = 0;     ///< horizontal distance between windows in pixels
  std::int64_t output_height = 0;    ///< output height in windows
  std::int64_t output_width = 0;     ///< output width in windows
  std::int64_t pad_top = 0;          ///< rows of zeros above
  std::int64_t pad_bottom = 0;       ///< rows of zeros below
  std::int64_t pad_left = 0;         ///< columns of zeros on the left
  std::int64_t pad_right = 0;        ///< columns of zeros on the right
  std::int64_t dilation_height = 1;  ///< vertical distance between elements of a window in pixels
  std::int64_t dilation_width = 1;   ///< horizontal distance between elements of a window in pixels

  /// Whether some elements of a window are not neighbors in the input.
  constexpr bool is_dilated() const { return dilation_height > 1 || dilation_width > 1; }
};

/// Refuses, through `context`, extents that are not positive, and windows that span more than 2^30
/// pixels.
void check_window(const BuildContext& context, Extent2D kernel, Extent2D strides,
                  Extent2D dilation = 1);

/// Refuses, through `context`, like check_window(), and also windows larger than the padded input.
WindowGeometry window_geometry(const BuildContext& context, const Shape& input, Extent2D kernel,
                               Extent2D strides, Padding padding, Extent2D dilation = 1);

/// window_geometry() without checks, for shapes that build() has accepted.
WindowGeometry window_geometry(const Shape& input, Extent2D kernel, Extent2D strides,
                               Padding padding, Extent2D dilation = 1);

}  // namespace lockstep::inline v0::model
