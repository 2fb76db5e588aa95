#include "lockstep/model/layers/conv_2d/winograd_transforms.h"

#include <omp.h>

#include <Eigen/Core>
#include <algorithm>
#include <array>

#include "lockstep/base/system/host.h"
#include "lockstep/model/cpu/lanes.h"

namespace lockstep::inline v0::model::cpu::winograd {
namespace {

// The transforms of a row or a column: values of polynomials at 0, +-1/sqrt(2), +-sqrt(2) and
// infinity. Rounding errors are half those of the usual points 0, +-1, +-2 and infinity.
constexpr float kRoot = 1.41421356f;
constexpr float kHalfRoot = 0.70710678f;

// Values at two pairs of points of opposite sign, of their even and odd parts.
[[gnu::always_inline]] inline void set_pairs(const Lanes& a, const Lanes& b, const Lanes& c,
                                             const Lanes& e, Lanes (&to)[kPatch]) {
  to[1] = a + b;
  to[2] = a - b;
  to[3] = c + e;
  to[4] = c - e;
}

// B^T, of the input.
struct PatchTransform {
  static constexpr std::size_t kFrom = kPatch;
  static constexpr std::size_t kTo = kPatch;
  static void apply(const Lanes (&d)[kFrom], Lanes (&to)[kTo]) {
    const Lanes a = d[4] - 2 * d[2];
    const Lanes b = kHalfRoot * (d[3] - 2 * d[1]);
    const Lanes c = d[4] - 0.5f * d[2];
    const Lanes e = kRoot * (d[3] - 0.5f * d[1]);
    to[0] = d[0] - 2.5f * d[2] + d[4];
    set_pairs(a, b, c, e, to);
    to[5] = d[1] - 2.5f * d[3] + d[5];
  }
};

// A, of the gradient of the output.
struct TileTransform {
  static constexpr std::size_t kFrom = kTile;
  static constexpr std::size_t kTo = kPatch;
  static void apply(const Lanes (&y)[kFrom], Lanes (&to)[kTo]) {
    const Lanes a = y[0] + 0.5f * y[2];
    const Lanes b = kHalfRoot * (y[1] + 0.5f * y[3]);
    const Lanes c = y[0] + 2 * y[2];
    const Lanes e = kRoot * (y[1] + 2 * y[3]);
    to[0] = y[0];
    set_pairs(a, b, c, e, to);
    to[5] = y[3];
  }
};

// A^T, to the output.
struct OutputTransform {
  static constexpr std::size_t kFrom = kPatch;
  static constexpr std::size_t kTo = kTile;
  static void apply(const Lanes (&m)[kFrom], Lanes (&to)[kTo]) {
    const Lanes a = m[1] + m[2];
    const Lanes b = kHalfRoot * (m[1] - m[2]);
    const Lanes c = m[3] + m[4];
    const Lanes e = kRoot * (m[3] - m[4]);
    to[0] = m[0] + a + c;
    to[1] = b + e;
    to[2] = 0.5f * a + 2 * c;
    to[3] = 0.5f * b + 2 * e + m[5];
  }
};

// G, of the kernel.
struct KernelTransform {
  static constexpr std::size_t kFrom = kKernel;
  static constexpr std::size_t kTo = kPatch;
  static void apply(const Lanes (&g)[kFrom], Lanes (&to)[kTo]) {
    const Lanes a = (g[0] + 0.5f * g[2]) * (-1.0f / 1.5f);
    const Lanes b = g[1] * (-kHalfRoot / 1.5f);
    const Lanes c = (g[0] + 2 * g[2]) * (1.0f / 6);
    const Lanes e = g[1] * (kRoot / 6);
    to[0] = g[0];
    set_pairs(a, b, c, e, to);
    to[5] = g[2];
  }
};

// G^T, to the gradient of the kernel.
struct KernelGradientTransform {
  static constexpr std::size_t kFrom = kPatch;
  static constexpr std::size_t kTo = kKernel;
  static void apply(const Lanes (&m)[kFrom], Lanes (&to)[kTo]) {
    const Lanes a = (m[1] + m[2]) * (-1.0f / 1.5f);
    const Lanes b = (m[1] - m[2]) * (-kHalfRoot / 1.5f);
    const Lanes c = (m[3] + m[4]) * (1.0f / 6);
    const Lanes e = (m[3] - m[4]) * (kRoot / 6);
    to[0] = m[0] + a + c;
    to[1] = b + e;
    to[2] = 0.5f * a + 2 * c + m[5];
  }
};

// Transforms the columns, then the rows of what load(row, column) returns; calls
// store(row, column, value).
template <typename Transform, typename Load, typename Store>
[[gnu::always_inline]] inline void transform(const Load& load, const Store& store) {
  constexpr std::size_t kFrom = Transform::kFrom;
  constexpr std::size_t kTo = Transform::kTo;
  Lanes half[kTo][kFrom];
#pragma GCC unroll 6
  for (std::size_t column = 0; column < kFrom; ++column) {
    Lanes from[kFrom];
#pragma GCC unroll 6
    for (std::size_t row = 0; row < kFrom; ++row) from[row] = load(row, column);
    Lanes to[kTo];
    Transform::apply(from, to);
#pragma GCC unroll 6
    for (std::size_t row = 0; row < kTo; ++row) half[row][column] = to[row];
  }
#pragma GCC unroll 6
  for (std::size_t row = 0; row < kTo; ++row) {
    Lanes to[kTo];
    Transform::apply(half[row], to);
#pragma GCC unroll 6
    for (std::size_t column = 0; column < kTo; ++column) store(row, column, to[column]);
  }
}

// Transforms the squares of the images at tile `first` and its successors.
template <typename Transform, typename T>
void transform_squares(const Images<const T>& images, const Grid& grid, std::int64_t first,
                       std::int64_t channel, const Matrices& matrices) {
  static constexpr std::array<T, kLanes> kZeros{};
#pragma omp parallel for num_threads(thread_budget()) schedule(static)
  for (std::int64_t tile = 0; tile < matrices.rows; ++tile) {
    const std::int64_t index = first + tile;
    const std::int64_t image = index / (grid.rows * grid.columns);
    const std::int64_t top = index / grid.columns % grid.rows * kTile + images.top;
    const std::int64_t left = index % grid.columns * kTile + images.left;
    std::array<const T*, Transform::kFrom * Transform::kFrom> pixels;
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      const std::int64_t y = top + static_cast<std::int64_t>(i / Transform::kFrom);
      const std::int64_t x = left + static_cast<std::int64_t>(i % Transform::kFrom);
      const bool inside =
          index < grid.tiles && y >= 0 && y < images.height && x >= 0 && x < images.width;
      pixels[i] = inside ? images.data +
                               ((image * images.height + y) * images.width + x) * images.channels +
                               channel
                         : nullptr;
    }
    for (std::int64_t c = 0; c < matrices.columns; c += kLanes)
      transform<Transform>(
          [&](std::size_t row, std::size_t column) {
            const T* const pixel = pixels[row * Transform::kFrom + column];
            return load_lanes(pixel == nullptr ? kZeros.data() : pixel + c);
          },
          [&](std::size_t row, std::size_t column, const Lanes& value) {
            store_lanes(value, matrices.at(row * kPatch + column, tile, c));
          });
  }
}

}  // namespace

template <typename T>
void transform_patches(const Images<const T>& images, const Grid& grid, std::int64_t first,
                       const Matrices& matrices) {
  transform_squares<PatchTransform>(images, grid, first, 0, matrices);
}

template <typename T>
void transform_tiles(const Images<const T>& images, const Grid& grid, std::int64_t first,
                     std::int64_t channel, const Matrices& matrices) {
  transform_squares<TileTransform>(images, grid, first, channel, matrices);
}

template <typename T>
void write_tiles(const Matrices& matrices, const Grid& grid, std::int64_t first,
                 std::int64_t channel, const float* bias, bool relu, const Images<T>& images) {
  const std::int64_t count = std::min(matrices.rows, grid.tiles - first);
#pragma omp parallel for num_threads(thread_budget()) schedule(static)
  for (std::int64_t tile = 0; tile < count; ++tile) {
    const std::int64_t index = first + tile;
    const std::int64_t image = index / (grid.rows * grid.columns);
    const std::int64_t top = index / grid.columns % grid.rows * kTile;
    const std::int64_t left = index % grid.columns * kTile;
    const auto rows = static_cast<std::size_t>(std::min(kTile, images.height - top));
    const auto columns = static_cast<std::size_t>(std::min(kTile, images.width - left));
    T* const corner = images.data +
                      ((image * images.height + top) * images.width + left) * images.channels +
                      channel;
    for (std::int64_t c = 0; c < matrices.columns; c += kLanes) {
      const Lanes shift = bias == nullptr ? Lanes{} : load_lanes(bias + channel + c);
      transform<OutputTransform>(
          [&](std::size_t row, std::size_t column) {
            return load_lanes(matrices.at(row * kPatch + column, tile, c));
          },
          [&](std::size_t row, std::size_t column, const Lanes& value) {
            if (row >= rows || column >= columns) return;
            const Lanes shifted = value + shift;
            const auto pixel =
                static_cast<std::int64_t>(row) * images.width + static_cast<std::int64_t>(column);
            store_lanes(relu ? (shifted < 0 ? Lanes{} : shifted) : shifted,
                        corner + pixel * images.channels + c);
          });
    }
  }
}

// Vectorized over filters, the slowest axis of the kernel.
template <typename T>
void transform_kernel(const T* kernel, std::int64_t first, const Matrices& matrices) {
  const std::int64_t inputs = matrices.rows;
#pragma omp parallel for num_threads(thread_budget()) schedule(static)
  for (std::int64_t input = 0; input < inputs; input += kLanes)
    for (std::int64_t output = 0; output < matrices.columns; output += kLanes) {
      Lanes taps[kKernel * kKernel][kLanes];
      for (std::int64_t tap = 0; tap < kKernel * kKernel; ++tap) {
        for (std::int64_t i = 0; i < kLanes; ++i)
          taps[tap][i] = load_lanes(
              kernel + ((first + output + i) * kKernel * kKernel + tap) * inputs + input);
        transpose_lanes(taps[tap]);
      }
      for (std::int64_t i = 0; i < kLanes; ++i)
        transform<KernelTransform>(
            [&](std::size_t row, std::size_t column) { return taps[row * kKernel + column][i]; },
            [&](std::size_t row, std::size_t column, const Lanes& value) {
              store_lanes(value, matrices.at(row * kPatch + column, input + i, output));
            });
    }
}

template <typename T>
void transform_rotated_kernel(const T* kernel, std::int64_t channels, std::int64_t first,
                              const Matrices& matrices) {
#pragma omp parallel for num_threads(thread_budget()) schedule(static)
  for (std::int64_t filter = 0; filter < matrices.rows; ++filter)
    for (std::int64_t c = 0; c < matrices.columns; c += kLanes)
      transform<KernelTransform>(
          [&](std::size_t row, std::size_t column) {
            const auto tap =
                static_cast<std::int64_t>((kKernel - 1 - row) * kKernel + kKernel - 1 - column);
            return load_lanes(kernel + (filter * kKernel * kKernel + tap) * channels + first + c);
          },
          [&](std::size_t row, std::size_t column, const Lanes& value) {
            store_lanes(value, matrices.at(row * kPatch + column, filter, c));
          });
}

void write_kernel_gradient(const Matrices& matrices, float* gradient) {
  const std::int64_t inputs = matrices.columns;
#pragma omp parallel for num_threads(thread_budget()) schedule(static)
  for (std::int64_t filter = 0; filter < matrices.rows; ++filter)
    for (std::int64_t c = 0; c < inputs; c += kLanes)
      transform<KernelGradientTransform>(
          [&](std::size_t row, std::size_t column) {
            return load_lanes(matrices.at(row * kPatch + column, filter, c));
          },
          [&](std::size_t row, std::size_t column, const Lanes& value) {
            const auto tap = static_cast<std::int64_t>(row * kKernel + column);
            store_lanes(value, gradient + (filter * kKernel * kKernel + tap) * inputs + c);
          });
}

// Sums row by row, with less rounding error than one long sum.
template <typename T>
void sum_pixels(const Images<const T>& images, std::int64_t batch, float* sums) {
  const std::int64_t row = images.width * images.channels;
#pragma omp parallel for num_threads(thread_budget()) schedule(static)
  for (std::int64_t c = 0; c < images.channels; c += kLanes) {
    Lanes sum{};
    for (std::int64_t y = 0; y < batch * images.height; ++y) {
      Lanes row_sum{};
      for (std::int64_t x = 0; x < row; x += images.channels)
        row_sum += load_lanes(images.data + y * row + x + c);
      sum += row_sum;
    }
    store_lanes(sum, sums + c);
  }
}

template void transform_patches(const Images<const float>&, const Grid&, std::int64_t,
                                const Matrices&);
template void transform_tiles(const Images<const float>&, const Grid&, std::int64_t, std::int64_t,
                              const Matrices&);
template void write_tiles(const Matrices&, const Grid&, std::int64_t, std::int64_t, const float*,
                          bool, const Images<float>&);
template void transform_kernel(const float*, std::int64_t, const Matrices&);
template void transform_rotated_kernel(const float*, std::int64_t, std::int64_t, const Matrices&);
template void sum_pixels(const Images<const float>&, std::int64_t, float*);
template void transform_patches(const Images<const Eigen::bfloat16>&, const Grid&, std::int64_t,
                                const Matrices&);
template void transform_tiles(const Images<const Eigen::bfloat16>&, const Grid&, std::int64_t,
                              std::int64_t, const Matrices&);
template void write_tiles(const Matrices&, const Grid&, std::int64_t, std::int64_t, const float*,
                          bool, const Images<Eigen::bfloat16>&);
template void transform_kernel(const Eigen::bfloat16*, std::int64_t, const Matrices&);
template void transform_rotated_kernel(const Eigen::bfloat16*, std::int64_t, std::int64_t,
                                       const Matrices&);
template void sum_pixels(const Images<const Eigen::bfloat16>&, std::int64_t, float*);

}  // namespace lockstep::inline v0::model::cpu::winograd
