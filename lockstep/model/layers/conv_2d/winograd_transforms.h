// The transforms of Winograd's algorithm (winograd.h): between images [batch, height, width,
// channels] or kernels [filters, 3, 3, channels], and 36 float32 matrices, one for each place of a
// transformed tile. Channels are multiples of kLanes. The threads of the replica share the work;
// results do not depend on their number.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::inline v0::model::cpu::winograd {

constexpr std::int64_t kKernel = 3;                // side of a kernel in pixels
constexpr std::int64_t kTile = 4;                  // side of an output tile
constexpr std::int64_t kPatch = 6;                 // side of the input of a tile
constexpr std::int64_t kPlaces = kPatch * kPatch;  // matrices

/// Images, and the origin of their first transformed square. T may be const.
template <typename T>
struct Images {
  T* data;
  std::int64_t height, width, channels;
  std::int64_t top = 0, left = 0;
};

/// The tiles of images, row by row.
struct Grid {
  std::int64_t rows = 0;     ///< in an image
  std::int64_t columns = 0;  ///< in an image
  std::int64_t tiles = 0;    ///< in all images
};

/// [36, rows, columns].
struct Matrices {
  float* data;
  std::int64_t rows, columns;

  float* at(std::size_t place, std::int64_t row, std::int64_t column) const {
    return data + (static_cast<std::int64_t>(place) * rows + row) * columns + column;
  }
};

/// Writes to the rows of `matrices` the transforms of the 6x6 input pixels of tile `first` and its
/// successors, all channels. Pixels outside the images and past the last tile are 0.
template <typename T>
void transform_patches(const Images<const T>& images, const Grid& grid, std::int64_t first,
                       const Matrices& matrices);
/// transform_patches() for the 4x4 tiles of the output gradient, channels from `channel` on.
template <typename T>
void transform_tiles(const Images<const T>& images, const Grid& grid, std::int64_t first,
                     std::int64_t channel, const Matrices& matrices);
/// Writes the pixels of tile `first` and its successors, channels from `channel` on, from the
/// transforms in the rows of `matrices`; adds `bias` unless it is null, then applies max(x, 0) if
/// `relu`.
template <typename T>
void write_tiles(const Matrices& matrices, const Grid& grid, std::int64_t first,
                 std::int64_t channel, const float* bias, bool relu, const Images<T>& images);

/// Transforms the kernel of the filters from `first` on to [channels, filters] at each place.
template <typename T>
void transform_kernel(const T* kernel, std::int64_t first, const Matrices& matrices);
/// Transforms the kernel rotated by 180 degrees, for those of its `channels` from `first` on, to
/// [filters, channels] at each place.
template <typename T>
void transform_rotated_kernel(const T* kernel, std::int64_t channels, std::int64_t first,
                              const Matrices& matrices);
/// Writes the kernel gradient of the filters that are the rows of `matrices` [filters, channels].
void write_kernel_gradient(const Matrices& matrices, float* gradient);

/// Writes to `sums` the sum of each channel over all pixels.
template <typename T>
void sum_pixels(const Images<const T>& images, std::int64_t batch, float* sums);

}  // namespace lockstep::inline v0::model::cpu::winograd
