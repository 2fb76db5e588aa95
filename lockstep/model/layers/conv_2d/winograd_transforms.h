// The transforms of Winograd's algorithm (winograd.h): between images [batch, height, width,
// channels] or kernels [filters, 3, 3, channels], and 36 float32 matrices, one for each place of a
// transformed tile. Channels are multiples of kLanes. Work is spread over the threads of the
// replica; each element is computed by one of them, in the same way for any number.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::model::cpu::winograd {

constexpr std::int64_t kKernel = 3;                // pixels of a side
constexpr std::int64_t kTile = 4;                  // of the output
constexpr std::int64_t kPatch = 6;                 // of the input, for one tile
constexpr std::int64_t kPlaces = kPatch * kPatch;  // matrices

/// Images, and where the first square of their pixels begins that is transformed. T may be const.
template <typename T>
struct Images {
  T* data;
  std::int64_t height, width, channels;
  std::int64_t top = 0, left = 0;
};

/// The tiles of images, row by row.
struct Grid {
  std::int64_t rows = 0;     ///< of tiles in an image
  std::int64_t columns = 0;  ///< of tiles in an image
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

/// Writes to each row of `matrices` the transform of a patch of 6x6 pixels of the input: of tile
/// `first` and those that follow it, all channels. Outside the images are zeros, and past the
/// last tile.
template <typename T>
void transform_patches(const Images<const T>& images, const Grid& grid, std::int64_t first,
                       const Matrices& matrices);
/// The same of tiles of 4x4 pixels of the output's gradient, of the channels from `channel` on.
template <typename T>
void transform_tiles(const Images<const T>& images, const Grid& grid, std::int64_t first,
                     std::int64_t channel, const Matrices& matrices);
/// Writes the pixels of tile `first` and those that follow it, in the channels from `channel` on,
/// whose transforms are the rows of `matrices`; adds `bias`, if it is not null, and with `relu`
/// writes max(x, 0).
template <typename T>
void write_tiles(const Matrices& matrices, const Grid& grid, std::int64_t first,
                 std::int64_t channel, const float* bias, bool relu, const Images<T>& images);

/// Transforms the kernel of the filters from `first` on to [channels, filters] at each place.
template <typename T>
void transform_kernel(const T* kernel, std::int64_t first, const Matrices& matrices);
/// Transforms the kernel turned by 180 degrees, of the channels from `first` on, of which it has
/// `channels`, to [filters, channels] at each place.
template <typename T>
void transform_turned_kernel(const T* kernel, std::int64_t channels, std::int64_t first,
                             const Matrices& matrices);
/// Writes the gradient of as many filters as `matrices` [filters, channels] have rows.
void write_kernel_gradient(const Matrices& matrices, float* gradient);

/// Writes to `sums` the sum of each channel over all pixels.
template <typename T>
void sum_pixels(const Images<const T>& images, std::int64_t batch, float* sums);

}  // namespace lockstep::model::cpu::winograd
