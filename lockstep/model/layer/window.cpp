#include "lockstep/model/layer/window.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/enum_names.h"
#include "lockstep/base/error.h"

namespace lockstep::inline v0::model {
namespace {

constexpr auto kPaddings = enum_names<Padding>(
    {{Padding::valid, "valid"}, {Padding::same, "same"}, {Padding::symmetric, "symmetric"}});

constexpr auto kInterpolations = enum_names<Interpolation>(
    {{Interpolation::nearest, "nearest"}, {Interpolation::bilinear, "bilinear"}});

// The pixels from the first to the last element of a window.
std::int64_t spanned(std::int64_t kernel, std::int64_t dilation) {
  return (kernel - 1) * dilation + 1;
}

struct Axis {
  std::int64_t output = 0;
  std::int64_t before = 0;
  std::int64_t after = 0;
};

Axis slide(std::int64_t input, std::int64_t kernel, std::int64_t stride, Padding padding) {
  Axis axis;
  switch (padding) {
    case Padding::valid:
      break;
    case Padding::same: {
      const std::int64_t outputs = (input + stride - 1) / stride;
      const std::int64_t total = std::max<std::int64_t>(0, (outputs - 1) * stride + kernel - input);
      axis.before = total / 2;
      axis.after = total - axis.before;
      break;
    }
    case Padding::symmetric:
      axis.before = axis.after = kernel / 2;
      break;
  }
  const std::int64_t padded = input + axis.before + axis.after;
  axis.output = padded < kernel ? 0 : (padded - kernel) / stride + 1;
  return axis;
}

}  // namespace

Padding parse_padding(std::string_view name) { return kPaddings.parse("padding", name); }
std::string_view to_string(Padding padding) { return kPaddings.name(padding); }

Interpolation parse_interpolation(std::string_view name) {
  return kInterpolations.parse("interpolation", name);
}
std::string_view to_string(Interpolation interpolation) {
  return kInterpolations.name(interpolation);
}

WindowGeometry window_geometry(const Shape& input, Extent2D kernel, Extent2D strides,
                               Padding padding, Extent2D dilation) {
  const Axis vertical =
      slide(input[0], spanned(kernel.height, dilation.height), strides.height, padding);
  const Axis horizontal =
      slide(input[1], spanned(kernel.width, dilation.width), strides.width, padding);
  return {.height = input[0],
          .width = input[1],
          .channels = input[2],
          .kernel_height = kernel.height,
          .kernel_width = kernel.width,
          .stride_height = strides.height,
          .stride_width = strides.width,
          .output_height = vertical.output,
          .output_width = horizontal.output,
          .pad_top = vertical.before,
          .pad_bottom = vertical.after,
          .pad_left = horizontal.before,
          .pad_right = horizontal.after,
          .dilation_height = dilation.height,
          .dilation_width = dilation.width};
}

void check_window(const BuildContext& context, Extent2D kernel, Extent2D strides,
                  Extent2D dilation) {
  constexpr std::int64_t kMaxPixels = std::int64_t{1} << 30;
  if (std::min({kernel.height, kernel.width, strides.height, strides.width}) <= 0)
    context.refuse("expected a positive window and stride",
                   fmt::format("got a window of {}x{} and strides of {}x{}", kernel.height,
                               kernel.width, strides.height, strides.width));
  if (std::min(dilation.height, dilation.width) <= 0)
    context.refuse("expected a positive dilation",
                   fmt::format("got {}x{}", dilation.height, dilation.width));
  const bool is_far =
      dilation.height > kMaxPixels / kernel.height || dilation.width > kMaxPixels / kernel.width;
  if (is_far ||
      spanned(kernel.height, dilation.height) > kMaxPixels / spanned(kernel.width, dilation.width))
    context.refuse("expected a window of at most 2^30 pixels",
                   fmt::format("got {}x{}, with a dilation of {}x{}", kernel.height, kernel.width,
                               dilation.height, dilation.width));
}

WindowGeometry window_geometry(const BuildContext& context, const Shape& input, Extent2D kernel,
                               Extent2D strides, Padding padding, Extent2D dilation) {
  check_window(context, kernel, strides, dilation);
  const WindowGeometry geometry = window_geometry(input, kernel, strides, padding, dilation);
  if (geometry.output_height <= 0 || geometry.output_width <= 0)
    context.refuse(
        fmt::format("expected an image of at least {}x{}", spanned(kernel.height, dilation.height),
                    spanned(kernel.width, dilation.width)),
        fmt::format("got {}", to_string(input)));
  return geometry;
}

}  // namespace lockstep::inline v0::model
