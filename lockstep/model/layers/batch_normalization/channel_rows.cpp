#include "lockstep/model/layers/batch_normalization/channel_rows.h"

#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/system/host.h"
#include "lockstep/model/cpu/lanes.h"
#include "lockstep/model/layers/batch_normalization/batch_statistics.h"

namespace lockstep::inline v0::model::cpu {
namespace {

// Registers that are summed in parallel, to hide the latency of additions.
constexpr std::int64_t kRegisters = 4;
// Maximum elements of a wide row of several rows.
constexpr std::int64_t kLargestWidth = 4096;
// Elements per block: few enough that a second pass over it hits a cache.
constexpr std::int64_t kElementsPerBlock = 8192;
constexpr std::int64_t kFewestRowsOfBlock = 32;
constexpr std::int64_t kMaxParts = 32;

// kCount registers of a wide row, from element `first` on.
template <std::int64_t kCount>
struct Chunk {
  static constexpr std::int64_t kSize = kCount;
  std::int64_t first;

  template <typename T>
  Lanes load(const T* row, std::int64_t i) const {
    return load_lanes(row + first + i * kLanes);
  }
  template <typename T>
  void store(const Lanes& values, T* row, std::int64_t i) const {
    store_lanes(values, row + first + i * kLanes);
  }
};

// The last elements, which do not fill a register.
struct LastChunk {
  static constexpr std::int64_t kSize = 1;
  std::int64_t first;
  std::size_t count;

  template <typename T>
  Lanes load(const T* row, std::int64_t /*i*/) const {
    T elements[kLanes] = {};
    std::memcpy(static_cast<void*>(elements), row + first, count * sizeof(T));
    return load_lanes(elements);
  }
  template <typename T>
  void store(const Lanes& values, T* row, std::int64_t /*i*/) const {
    T elements[kLanes];
    store_lanes(values, elements);
    std::memcpy(static_cast<void*>(row + first), elements, count * sizeof(T));
  }
};

// Calls each(chunk) for chunks of kCount registers, and for the elements past the last one.
template <std::int64_t kCount, typename Each>
[[gnu::always_inline]] inline void for_chunks(std::int64_t width, const Each& each) {
  std::int64_t i = 0;
  for (; i + kCount * kLanes <= width; i += kCount * kLanes) each(Chunk<kCount>{i});
  for (; i + kLanes <= width; i += kLanes) each(Chunk<1>{i});
  if (i < width) each(LastChunk{i, static_cast<std::size_t>(width - i)});
}

// Consecutive wide rows; the last one may be the rest of the array.
template <typename T>
struct Rows {
  T* data;
  std::int64_t count, width, stride;

  T* at(std::int64_t row) const { return data + row * stride; }

  // Prefetches the same element of the following rows, for loops over a block by columns, which the
  // hardware prefetcher does not predict.
  [[gnu::always_inline]] void fetch_next(const T* elements) const {
    if (width > kRegisters * kLanes) __builtin_prefetch(elements + count * stride, 0, 2);
  }
};

// Mask words per wide row, one per register.
std::int64_t mask_words(const ChannelRows& rows) { return (rows.width + kLanes - 1) / kLanes; }

// Calls each(part, first, count) for all blocks of wide rows, parts in parallel.
template <typename Each>
void for_row_blocks(const ChannelRows& rows, const Each& each) {
  const std::int64_t blocks = (rows.wide_rows + rows.block - 1) / rows.block;
  const int threads = std::min(static_cast<int>(rows.parts), thread_budget());
#pragma omp parallel for num_threads(threads) schedule(static)
  for (std::int64_t part = 0; part < rows.parts; ++part)
    for (std::int64_t b = part * blocks / rows.parts; b < (part + 1) * blocks / rows.parts; ++b)
      each(part, b * rows.block, std::min(rows.block, rows.wide_rows - b * rows.block));
}

// Calls function(elements) with the view's elements, of their type.
template <typename Function>
void with_elements(const TensorView& view, const Function& function) {
  if (view.type() == Precision::float32)
    function(static_cast<float*>(view.data()));
  else
    function(static_cast<Eigen::bfloat16*>(view.data()));
}

// Consecutive arrays with a value for each place of a wide row.
class Scratch {
 public:
  Scratch(const ChannelRows& rows, std::span<std::byte> memory)
      : rows_(rows), next_(reinterpret_cast<float*>(memory.data())) {}

  static std::int64_t stride(const ChannelRows& rows) {
    return (rows.width + kLanes - 1) / kLanes * kLanes;
  }
  float* places() { return std::exchange(next_, next_ + stride(rows_)); }
  // An array of the value of each place's channel.
  template <typename Value>
  const float* expand(const Value& value) {
    float* const places = this->places();
    for (std::int64_t c = 0; c < rows_.channels; ++c) places[c] = value(c);
    for (std::int64_t i = rows_.channels; i < rows_.width; ++i)
      places[i] = places[i - rows_.channels];
    return places;
  }

 private:
  const ChannelRows& rows_;
  float* next_;
};

// Per part, the sums of two values at each place, and those of a block.
constexpr std::int64_t kArraysPerPart = 4;
constexpr std::int64_t kArraysOfScale = 6;

// means[i], squares[i]: the moments of `rows` at place i.
template <typename T>
void block_moments(const Rows<const T>& rows, float* means, float* squares) {
  const auto count = static_cast<float>(rows.count);
  for_chunks<kRegisters>(rows.width, [&](const auto& chunk) {
    constexpr std::int64_t kSize = std::decay_t<decltype(chunk)>::kSize;
    Lanes sums[kSize] = {};
    for (std::int64_t r = 0; r < rows.count; ++r)
#pragma GCC unroll 4
      for (std::int64_t i = 0; i < kSize; ++i) {
        sums[i] += chunk.load(rows.at(r), i);
        rows.fetch_next(rows.at(r) + chunk.first + i * kLanes);
      }
    Lanes square_sums[kSize] = {};
#pragma GCC unroll 4
    for (std::int64_t i = 0; i < kSize; ++i) sums[i] /= count;
    for (std::int64_t r = 0; r < rows.count; ++r)
#pragma GCC unroll 4
      for (std::int64_t i = 0; i < kSize; ++i) {
        const Lanes distance = chunk.load(rows.at(r), i) - sums[i];
        square_sums[i] += distance * distance;
      }
    for (std::int64_t i = 0; i < kSize; ++i) {
      chunk.store(sums[i], means, i);
      chunk.store(square_sums[i], squares, i);
    }
  });
}

// Merges the moments of `added` rows at each of `width` places to those of `count` rows.
void merge_moments(float* __restrict means, float* __restrict squares, float count,
                   const float* __restrict more_means, const float* __restrict more_squares,
                   float added, std::int64_t width) {
  if (count == 0) {
    std::copy_n(more_means, width, means);
    std::copy_n(more_squares, width, squares);
    return;
  }
  for (std::int64_t i = 0; i < width; ++i) {
    const BatchMoments both =
        combine({count, means[i], squares[i]}, {added, more_means[i], more_squares[i]});
    means[i] = both.mean;
    squares[i] = both.squares;
  }
}

template <typename T>
void moments_of(const T* input, const ChannelRows& rows, std::span<std::byte> scratch, float* means,
                float* squares) {
  const std::int64_t stride = Scratch::stride(rows);
  auto* const sums = reinterpret_cast<float*>(scratch.data());
  const auto part_array = [&](std::int64_t part, std::int64_t array) {
    return sums + (part * kArraysPerPart + array) * stride;
  };
  std::array<float, kMaxParts> counts{};
  for_row_blocks(rows, [&](std::int64_t part, std::int64_t first, std::int64_t count) {
    float* const block_sums = part_array(part, 2);
    block_moments<T>({input + first * rows.width, count, rows.width, rows.width}, block_sums,
                     block_sums + stride);
    float& merged = counts[static_cast<std::size_t>(part)];
    merge_moments(part_array(part, 0), part_array(part, 1), merged, block_sums, block_sums + stride,
                  static_cast<float>(count), rows.width);
    merged += static_cast<float>(count);
  });
  for (std::int64_t part = 1; part < rows.parts; ++part) {
    const float added = counts[static_cast<std::size_t>(part)];
    merge_moments(part_array(0, 0), part_array(0, 1), counts[0], part_array(part, 0),
                  part_array(part, 1), added, rows.width);
    counts[0] += added;
  }
  block_moments<T>({input + rows.wide_rows * rows.width, 1, rows.rest, rows.width},
                   part_array(0, 2), part_array(0, 3));
  for (std::int64_t c = 0; c < rows.channels; ++c) {
    BatchMoments all;
    for (std::int64_t i = c; i < rows.width; i += rows.channels)
      all = combine(all, {counts[0], part_array(0, 0)[i], part_array(0, 1)[i]});
    for (std::int64_t i = c; i < rows.rest; i += rows.channels)
      all = combine(all, {1, part_array(0, 2)[i], part_array(0, 3)[i]});
    means[c] = all.mean;
    squares[c] = all.squares;
  }
}

// The parameters of a normalization at each place.
struct PlaceScale {
  PlaceScale(const ChannelScale& scale, Scratch& scratch)
      : means(scratch.expand([&](std::int64_t c) { return scale.means[c]; })),
        factors(scratch.expand(
            [&](std::int64_t c) { return scale.inverse_deviations[c] * scale.gamma[c]; })),
        beta(scratch.expand([&](std::int64_t c) { return scale.beta[c]; })) {}

  const float* means;
  const float* factors;
  const float* beta;
};

template <typename T>
void normalize_rows(const Rows<const T>& input, const T* added, const PlaceScale& scale, bool relu,
                    T* output, std::uint16_t* mask) {
  const Lanes least = lanes_of(relu ? 0.0f : -std::numeric_limits<float>::infinity());
  for (std::int64_t r = 0; r < input.count; ++r)
    for_chunks<1>(input.width, [&](const auto& chunk) {
      const Lanes deviation = chunk.load(input.at(r), 0) - chunk.load(scale.means, 0);
      Lanes result = deviation * chunk.load(scale.factors, 0) + chunk.load(scale.beta, 0);
      if (added != nullptr) result += chunk.load(added + r * input.stride, 0);
      if (mask != nullptr) *mask++ = lane_bits(result > 0);
      // This form propagates NaN.
      chunk.store(result < least ? least : result, output + r * input.stride, 0);
    });
}

// The output gradient of some wide rows, and the mask of the part that passes.
template <typename T>
struct Gradient {
  const T* output_gradient;
  const std::uint16_t* mask;  // null: all of it
  std::int64_t words;         // mask words per wide row

  template <typename C>
  Lanes load(const C& chunk, const Rows<const T>& rows, std::int64_t row, std::int64_t i) const {
    const Lanes all = chunk.load(output_gradient + row * rows.stride, i);
    if (mask == nullptr) return all;
    return lanes_where(mask[row * words + chunk.first / kLanes + i], all);
  }
};

// Adds to gradients[i] the sum of g, to products[i] that of g * deviation, at place i.
template <typename T>
void add_gradients(const Rows<const T>& input, const Gradient<T>& gradient, const PlaceScale& scale,
                   float* gradients, float* products) {
  for_chunks<kRegisters>(input.width, [&](const auto& chunk) {
    constexpr std::int64_t kSize = std::decay_t<decltype(chunk)>::kSize;
    Lanes sums[kSize] = {};
    Lanes product_sums[kSize] = {};
    Lanes means[kSize];
#pragma GCC unroll 4
    for (std::int64_t i = 0; i < kSize; ++i) means[i] = chunk.load(scale.means, i);
    for (std::int64_t r = 0; r < input.count; ++r)
#pragma GCC unroll 4
      for (std::int64_t i = 0; i < kSize; ++i) {
        const Lanes g = gradient.load(chunk, input, r, i);
        const std::int64_t offset = r * input.stride + chunk.first + i * kLanes;
        input.fetch_next(input.data + offset);
        input.fetch_next(gradient.output_gradient + offset);
        sums[i] += g;
        product_sums[i] += g * (chunk.load(input.at(r), i) - means[i]);
      }
    for (std::int64_t i = 0; i < kSize; ++i) {
      chunk.store(chunk.load(gradients, i) + sums[i], gradients, i);
      chunk.store(chunk.load(products, i) + product_sums[i], products, i);
    }
  });
}

// The gradient of the input is factor * (g - shift - deviation * slope), that of the added input is
// g.
struct Correction {
  const float* shifts;
  const float* slopes;
};

template <typename T>
void write_gradients(const Rows<const T>& input, const Gradient<T>& gradient,
                     const PlaceScale& scale, const Correction& correction, T* input_gradient,
                     T* added_gradient) {
  for (std::int64_t r = 0; r < input.count; ++r)
    for_chunks<1>(input.width, [&](const auto& chunk) {
      const Lanes g = gradient.load(chunk, input, r, 0);
      const Lanes deviation = chunk.load(input.at(r), 0) - chunk.load(scale.means, 0);
      if (added_gradient != nullptr) chunk.store(g, added_gradient + r * input.stride, 0);
      if (input_gradient == nullptr) return;
      const Lanes rest =
          g - chunk.load(correction.shifts, 0) - deviation * chunk.load(correction.slopes, 0);
      chunk.store(chunk.load(scale.factors, 0) * rest, input_gradient + r * input.stride, 0);
    });
}

// Calls each(part, first row, rows) for all blocks of wide rows, and for the rest of the array.
template <typename T, typename Each>
void for_rows(const ChannelRows& rows, const T* data, const Each& each) {
  for_row_blocks(rows, [&](std::int64_t part, std::int64_t first, std::int64_t count) {
    each(part, first, Rows<const T>{data + first * rows.width, count, rows.width, rows.width});
  });
  if (rows.rest > 0)
    each(0, rows.wide_rows,
         Rows<const T>{data + rows.wide_rows * rows.width, 1, rows.rest, rows.width});
}

// for_rows() with each(part, first element, rows, gradient).
template <typename T, typename Each>
void for_gradients(const ChannelRows& rows, const GradientArrays& arrays, const T* input,
                   const Each& each) {
  const auto* const gradient_data = static_cast<const T*>(arrays.output_gradient.data());
  const std::int64_t words = mask_words(rows);
  for_rows(
      rows, input, [&](std::int64_t part, std::int64_t first, const Rows<const T>& input_rows) {
        const std::int64_t offset = first * rows.width;
        each(part, offset, input_rows,
             Gradient<T>{gradient_data + offset,
                         arrays.mask == nullptr ? nullptr : arrays.mask + first * words, words});
      });
}

// Element `offset` of an array that may be missing.
template <typename T>
T* element(T* array, std::int64_t offset) {
  return array == nullptr ? nullptr : array + offset;
}

}  // namespace

ChannelRows::ChannelRows(std::int64_t rows, std::int64_t channel_count) : channels(channel_count) {
  LOCKSTEP_CHECK(channels > 0);
  constexpr std::int64_t kChunk = kRegisters * kLanes;
  std::int64_t together = kChunk / std::gcd(channels, kChunk);
  if (channels * together > kLargestWidth) together = 1;
  width = channels * together;
  wide_rows = rows / together;
  rest = rows % together * channels;
  block = std::max(kFewestRowsOfBlock, kElementsPerBlock / width);
  parts = std::clamp<std::int64_t>((wide_rows + block - 1) / block, 1, kMaxParts);
}

std::size_t ChannelRows::scratch_bytes() const {
  return static_cast<std::size_t>((parts * kArraysPerPart + kArraysOfScale) *
                                  Scratch::stride(*this)) *
         sizeof(float);
}

void channel_moments(const TensorView& input, const ChannelRows& rows, std::span<std::byte> scratch,
                     float* means, float* squares) {
  with_elements(input, [&]<typename T>(const T* elements) {
    moments_of(elements, rows, scratch, means, squares);
  });
}

std::size_t ChannelRows::mask_bytes() const {
  return static_cast<std::size_t>((wide_rows + (rest > 0 ? 1 : 0)) * mask_words(*this)) *
         sizeof(std::uint16_t);
}

void normalize(const TensorView& input, const TensorView& added, const ChannelScale& scale,
               bool relu, const ChannelRows& rows, std::span<std::byte> scratch,
               const TensorView& output, std::uint16_t* mask) {
  Scratch arrays(rows, scratch);
  const PlaceScale place_scale(scale, arrays);
  with_elements(output, [&]<typename T>(T* to) {
    const auto* const more = static_cast<const T*>(added.data());
    for_rows(rows, static_cast<const T*>(input.data()),
             [&](std::int64_t /*part*/, std::int64_t first, const Rows<const T>& input_rows) {
               const std::int64_t offset = first * rows.width;
               normalize_rows(input_rows, element(more, offset), place_scale, relu, to + offset,
                              element(mask, first * mask_words(rows)));
             });
  });
}

void gradient_sums(const GradientArrays& arrays, const ChannelScale& scale, const ChannelRows& rows,
                   std::span<std::byte> scratch, float* sums) {
  Scratch memory(rows, scratch);
  const PlaceScale place_scale(scale, memory);
  const std::int64_t stride = Scratch::stride(rows);
  float* const place_sums = memory.places();
  const auto part_array = [&](std::int64_t part) { return place_sums + part * 2 * stride; };
  std::fill_n(place_sums, rows.parts * 2 * stride, 0.0f);
  with_elements(arrays.input, [&]<typename T>(const T* input) {
    for_gradients(rows, arrays, input,
                  [&](std::int64_t part, std::int64_t /*offset*/, const Rows<const T>& input_rows,
                      const Gradient<T>& gradient) {
                    add_gradients(input_rows, gradient, place_scale, part_array(part),
                                  part_array(part) + stride);
                  });
  });
  std::fill_n(sums, 2 * rows.channels, 0.0f);
  for (std::int64_t part = 0; part < rows.parts; ++part)
    for (std::int64_t first = 0; first < rows.width; first += rows.channels)
      for (std::int64_t c = 0; c < rows.channels; ++c) {
        sums[c] += part_array(part)[first + c];
        sums[rows.channels + c] += part_array(part)[stride + first + c];
      }
  for (std::int64_t c = 0; c < rows.channels; ++c)
    sums[rows.channels + c] *= scale.inverse_deviations[c];
}

void input_gradient(const GradientArrays& arrays, const ChannelScale& scale, const float* sums,
                    float count, const ChannelRows& rows, std::span<std::byte> scratch,
                    const TensorView& input_gradient, const TensorView& added_gradient) {
  Scratch memory(rows, scratch);
  const PlaceScale place_scale(scale, memory);
  const Correction correction = {
      .shifts = memory.expand([&](std::int64_t c) { return sums[c] / count; }),
      .slopes = memory.expand([&](std::int64_t c) {
        return sums[rows.channels + c] * scale.inverse_deviations[c] / count;
      })};
  with_elements(arrays.input, [&]<typename T>(const T* input) {
    auto* const to = static_cast<T*>(input_gradient.data());
    auto* const to_added = static_cast<T*>(added_gradient.data());
    for_gradients(rows, arrays, input,
                  [&](std::int64_t /*part*/, std::int64_t offset, const Rows<const T>& input_rows,
                      const Gradient<T>& gradient) {
                    write_gradients(input_rows, gradient, place_scale, correction,
                                    element(to, offset), element(to_added, offset));
                  });
  });
}

}  // namespace lockstep::inline v0::model::cpu
