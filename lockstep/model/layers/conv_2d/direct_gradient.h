// The kernel gradient, on CPUs, of a convolution of images with few channels, such as the first
// layer of a network: computed directly, vectorized over filters. oneDNN vectorizes over channels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/model/cpu/onednn.h"
#include "lockstep/model/layers/conv_2d/conv_2d.h"

namespace lockstep::inline v0::model::cpu {

/// The gradient of float32 arrays. The batch is divided into parts whose sums are added in order,
/// so that the result does not depend on the number of threads.
class DirectKernelGradient {
 public:
  explicit DirectKernelGradient(const Conv2DSpec& spec);

  /// Whether it can compute the gradient of `spec`, and is faster than oneDNN for operands of
  /// `type`. Depends on the shape, the type, the instruction set and the build only.
  static bool is_profitable(const Conv2DSpec& spec, memory::data_type type);

  std::size_t scratch_bytes() const;

  /// Writes the gradient [filters, kernel_height, kernel_width, channels], and [filters] of the
  /// bias unless it is null. `scratch` is aligned to a cache line.
  void run(const float* images, const float* output_gradient, float* kernel_gradient,
           float* bias_gradient, std::span<std::byte> scratch) const;

 private:
  void copy_image(const float* image, float* to) const;
  void add_image(const float* copy, const float* ones, const float* gradient, float* sums) const;

  Conv2DSpec spec_;
  std::int64_t taps_;  // elements of the kernel for one filter
  std::int64_t parts_;
  int threads_;
  // Sizes in floats: a padded image row, a padded image, ones, and the sums of a part.
  std::int64_t line_, copy_, ones_, sums_;
  std::int64_t rows_, columns_;  // output rows and columns per step
};

}  // namespace lockstep::inline v0::model::cpu
