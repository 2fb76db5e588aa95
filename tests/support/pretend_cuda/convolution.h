// Convolution of dense float arrays, in the plainest loops that are not slow.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace lockstep::inline v0::pretend {

/// Sizes or strides of a tensor [n, h, w, c], or of filters [n, h, w, c] with c the channels of a
/// group.
struct Shape {
  std::ptrdiff_t n = 0;
  std::ptrdiff_t c = 0;
  std::ptrdiff_t h = 0;
  std::ptrdiff_t w = 0;

  std::size_t count() const { return static_cast<std::size_t>(n * c * h * w); }
  bool operator==(const Shape&) const = default;
};

/// How filters move over an image.
struct Steps {
  std::ptrdiff_t pad_h = 0;
  std::ptrdiff_t pad_w = 0;
  std::ptrdiff_t h = 1;
  std::ptrdiff_t w = 1;
  std::ptrdiff_t dilation_h = 1;
  std::ptrdiff_t dilation_w = 1;
  std::ptrdiff_t groups = 1;
};

Shape output_shape(const Shape& x, const Shape& filter, const Steps& steps);

/// Sizes of a convolution.
struct Problem {
  Shape x;
  Shape filter;
  Shape y;
  Steps steps;
};

// Arrays and results are dense, channels last. With `backwards`, images are summed from the last to
// the first, which changes the rounding.
std::vector<float> convolve(const Problem& problem, std::span<const float> x,
                            std::span<const float> filter);
std::vector<float> gradient_of_data(const Problem& problem, std::span<const float> y_gradient,
                                    std::span<const float> filter);
std::vector<float> gradient_of_filter(const Problem& problem, std::span<const float> x,
                                      std::span<const float> y_gradient, bool backwards);

}  // namespace lockstep::inline v0::pretend
