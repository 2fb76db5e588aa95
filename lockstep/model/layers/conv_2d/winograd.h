// Convolutions of 3x3 with stride 1 on CPUs by Winograd's minimal filtering F(4x4, 3x3): 36
// products per channel pair make 16 pixels, where the definition needs 144 (Lavin and Gray, "Fast
// Algorithms for Convolutional Neural Networks", 2016, arXiv:1509.09308). Tiles of the arrays are
// transformed, multiplied as 36 matrices by oneDNN, and transformed back; all in float32, whatever
// the type of the arrays. The rounding error is twice that of oneDNN's convolution: 8e-7 to 2e-6 of
// the root mean square of the result for 64 to 512 channels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/model/cpu/onednn.h"
#include "lockstep/model/layers/conv_2d/conv_2d.h"
#include "lockstep/model/layers/conv_2d/winograd_transforms.h"

namespace lockstep::inline v0::model::cpu::winograd {

/// What a convolution computes: its output, the gradient of its input, or that of its kernel.
enum class Pass { forward, data_gradient, kernel_gradient };

/// Whether this algorithm can compute `pass` of `spec`, and is faster than oneDNN's convolution of
/// operands of `type` by their measured costs. Depends on the shape, the type, the instruction set
/// and the build only, so that a resumed training makes the same choice.
bool is_profitable(const Conv2DSpec& spec, Pass pass, memory::data_type type);

/// Products are computed for blocks of tiles and of columns of the result, so that their transforms
/// stay in a cache.
struct Blocks {
  std::int64_t tiles = 0;    ///< per block; the last may have fewer
  std::int64_t outputs = 0;  ///< result channels per block, a divisor of all
};

/// Forward, or the gradient of the input.
class Product {
 public:
  /// `pass` is not kernel_gradient.
  Product(Context& context, const Conv2DSpec& spec, Pass pass);

  std::size_t scratch_bytes() const;

  /// Writes to `result` the convolution of `images` with `kernel` [filters, 3, 3, channels], all of
  /// one type, plus `bias` unless it is null; then max(x, 0) if the pass is forward and the spec
  /// has a ReLU.
  void run(const TensorView& images, const TensorView& kernel, const float* bias,
           const TensorView& result, std::span<std::byte> scratch);

 private:
  template <typename T>
  void run(const T* images, const T* kernel, const float* bias, T* result,
           std::span<std::byte> scratch);

  Conv2DSpec spec_;
  Pass pass_;
  Grid grid_;
  std::int64_t inputs_;   // channels of `images`
  std::int64_t outputs_;  // channels of the result
  Blocks blocks_;
  Primitive product_;
};

/// The gradients of kernel and bias.
class KernelGradient {
 public:
  KernelGradient(Context& context, const Conv2DSpec& spec);

  std::size_t scratch_bytes() const;

  /// Writes `kernel_gradient` [filters, 3, 3, channels], and `bias_gradient` unless it is null,
  /// from the input `images` and the gradient of the output, both of one type.
  void run(const TensorView& images, const TensorView& output_gradient, float* kernel_gradient,
           float* bias_gradient, std::span<std::byte> scratch);

 private:
  template <typename T>
  void run(const T* images, const T* output_gradient, float* kernel_gradient, float* bias_gradient,
           std::span<std::byte> scratch);

  Conv2DSpec spec_;
  Grid grid_;
  Blocks blocks_;
  Primitive first_product_;  // the first block of tiles
  Primitive next_product_;   // adds a block to the result
};

}  // namespace lockstep::inline v0::model::cpu::winograd
