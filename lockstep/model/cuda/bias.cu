#include "lockstep/model/cuda/bias.h"

#include "lockstep/device/cuda/launch.h"
#include "lockstep/model/cuda/channel_reduction.h"

namespace lockstep::inline v0::model::cuda {
namespace {

using device::cuda::launch;

template <typename T, int kWidth>
__global__ void add_bias_rows(T* values, const T* bias, bool relu, std::int64_t packs,
                              std::int64_t channels) {
  for (auto index = static_cast<std::int64_t>(first_index()); index < packs;
       index += static_cast<std::int64_t>(index_stride())) {
    Values<T, kWidth> v = load<T, kWidth>(values + index * kWidth);
    Values<T, kWidth> b{};
    if (bias != nullptr) b = load<T, kWidth>(bias + index * kWidth % channels);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float sum = v.elements[i] + b.elements[i];
      v.elements[i] = relu && sum <= 0 ? 0.0f : sum;
    }
    store<T, kWidth>(values + index * kWidth, v);
  }
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kRowThreads, kRowBlocksPerMultiprocessor)
    column_sums_of_rows(const T* values, ChannelLayout layout, Pair* partials) {
  const Walk<kWidth> walk(layout);
  Pair sums[kWidth];
  if (walk.channel < layout.channels)
    for_each_row<4>(
        walk, layout.rows,
        [&](std::int64_t row) {
          return load_stored<T, kWidth>(values + row * layout.channels + walk.channel);
        },
        [&](std::int64_t, const Stored<T, kWidth>& stored) {
          const Values<T, kWidth> v = values_of<T, kWidth>(stored);
#pragma unroll
          for (int i = 0; i < kWidth; ++i) sums[i].first += v.elements[i];
        });
  add_lanes<kWidth>(sums, layout, partials);
}

__global__ void __launch_bounds__(kSumThreads)
    add_column_sums(const Pair* partials, ChannelLayout layout, float* sums) {
  const WidePair sum = sum_partials(partials, layout);
  if (has_sum(layout.channels)) sums[summed_channel()] = static_cast<float>(sum.first);
}

// An image inside a larger one; packs of channels.
struct Frame {
  std::int64_t height, width, packs;
  std::int64_t padded_height, padded_width;
  std::int64_t top, left;
};

template <typename T, int kWidth>
__global__ void pad(const T* image, Frame f, std::int64_t count, T* padded) {
  for (auto index = static_cast<std::int64_t>(first_index()); index < count;
       index += static_cast<std::int64_t>(index_stride())) {
    const std::int64_t pack = index % f.packs;
    const std::int64_t column = index / f.packs % f.padded_width - f.left;
    const std::int64_t row = index / (f.packs * f.padded_width) % f.padded_height - f.top;
    const std::int64_t number = index / (f.packs * f.padded_width * f.padded_height);
    Values<T, kWidth> values{};
    if (row >= 0 && row < f.height && column >= 0 && column < f.width)
      values = load<T, kWidth>(
          image + (((number * f.height + row) * f.width + column) * f.packs + pack) * kWidth);
    store<T, kWidth>(padded + index * kWidth, values);
  }
}

template <typename T, int kWidth>
__global__ void crop(const T* padded, Frame f, std::int64_t count, T* image) {
  for (auto index = static_cast<std::int64_t>(first_index()); index < count;
       index += static_cast<std::int64_t>(index_stride())) {
    const std::int64_t pack = index % f.packs;
    const std::int64_t column = index / f.packs % f.width + f.left;
    const std::int64_t row = index / (f.packs * f.width) % f.height + f.top;
    const std::int64_t number = index / (f.packs * f.width * f.height);
    store<T, kWidth>(
        image + index * kWidth,
        load<T, kWidth>(
            padded +
            (((number * f.padded_height + row) * f.padded_width + column) * f.packs + pack) *
                kWidth));
  }
}

// Folding for kernels: indices within a sample, and within a kernel, fit in 32 bits.
struct Fold {
  int height, width;
  int top, left;
  unsigned image_channels;
  unsigned rows, columns;  // size of the folded image
  unsigned channels, folded_channels, stride_height, stride_width;
  unsigned kernel_height, kernel_width, folded_kernel_height, folded_kernel_width;
};

// One block per row of the folded image, one thread per pack of its channels.
template <typename T>
__global__ void fold_rows(const T* images, Fold f, T* folded) {
  constexpr unsigned kElements = Pack<T>::kElements;
  const unsigned packs = f.folded_channels / kElements;
  const unsigned items = f.columns * packs;
  const T* const image = images + static_cast<std::int64_t>(blockIdx.x / f.rows) * f.height *
                                      f.width * f.image_channels;
  T* const row = folded + static_cast<std::int64_t>(blockIdx.x) * items * kElements;
  const int first_y = static_cast<int>(blockIdx.x % f.rows * f.stride_height) - f.top;
  for (unsigned item = threadIdx.x; item < items; item += blockDim.x) {
    const int first_x = static_cast<int>(item / packs * f.stride_width) - f.left;
    const unsigned first = item % packs * kElements;
    unsigned channel = first % f.channels;
    unsigned x = first / f.channels % f.stride_width;
    unsigned y = first / f.channels / f.stride_width;
    Pack<T> pack;
#pragma unroll
    for (unsigned i = 0; i < kElements; ++i) {
      const int from_y = first_y + static_cast<int>(y);
      const int from_x = first_x + static_cast<int>(x);
      const bool is_pixel = y < f.stride_height && from_y >= 0 && from_y < f.height &&
                            from_x >= 0 && from_x < f.width;
      pack.elements[i] = narrow<T>(0.0f);
      if (is_pixel)
        pack.elements[i] =
            image[static_cast<unsigned>(from_y * f.width + from_x) * f.image_channels + channel];
      if (++channel < f.channels) continue;
      channel = 0;
      if (++x < f.stride_width) continue;
      x = 0;
      ++y;
    }
    *reinterpret_cast<Pack<T>*>(row + item * kElements) = pack;
  }
}

template <typename T>
__global__ void fold_taps(const T* kernel, Fold f, unsigned count, T* folded) {
  for (auto index = static_cast<unsigned>(first_index()); index < count;
       index += static_cast<unsigned>(index_stride())) {
    const unsigned element = index % f.folded_channels;
    const unsigned tap = index / f.folded_channels;
    const unsigned place = element / f.channels;
    const unsigned filter = tap / f.folded_kernel_width / f.folded_kernel_height;
    const unsigned y = tap / f.folded_kernel_width % f.folded_kernel_height * f.stride_height +
                       place / f.stride_width;
    const unsigned x = tap % f.folded_kernel_width * f.stride_width + place % f.stride_width;
    const bool is_tap =
        place < f.stride_height * f.stride_width && y < f.kernel_height && x < f.kernel_width;
    folded[index] =
        is_tap ? kernel[((filter * f.kernel_height + y) * f.kernel_width + x) * f.image_channels +
                        element % f.channels]
               : narrow<T>(0.0f);
  }
}

template <typename T>
__global__ void unfold_taps(const T* folded, Fold f, unsigned count, T* kernel) {
  for (auto index = static_cast<unsigned>(first_index()); index < count;
       index += static_cast<unsigned>(index_stride())) {
    const unsigned channel = index % f.image_channels;
    const unsigned pixel = index / f.image_channels;
    const unsigned x = pixel % f.kernel_width;
    const unsigned y = pixel / f.kernel_width % f.kernel_height;
    const unsigned filter = pixel / f.kernel_width / f.kernel_height;
    const unsigned place = y % f.stride_height * f.stride_width + x % f.stride_width;
    const unsigned tap =
        (filter * f.folded_kernel_height + y / f.stride_height) * f.folded_kernel_width +
        x / f.stride_width;
    kernel[index] = channel < f.channels
                        ? folded[tap * f.folded_channels + place * f.channels + channel]
                        : narrow<T>(0.0f);
  }
}

Fold fold_of(const Folding& folding) {
  const WindowGeometry& w = folding.window;
  const WindowGeometry& folded = folding.folded_window;
  const auto whole = [](std::int64_t extent) { return static_cast<unsigned>(extent); };
  return {.height = static_cast<int>(w.height),
          .width = static_cast<int>(w.width),
          .top = static_cast<int>(w.pad_top),
          .left = static_cast<int>(w.pad_left),
          .image_channels = whole(w.channels),
          .rows = whole(folded.height),
          .columns = whole(folded.width),
          .channels = whole(folding.channels),
          .folded_channels = whole(folded.channels),
          .stride_height = whole(w.stride_height),
          .stride_width = whole(w.stride_width),
          .kernel_height = whole(w.kernel_height),
          .kernel_width = whole(w.kernel_width),
          .folded_kernel_height = whole(folded.kernel_height),
          .folded_kernel_width = whole(folded.kernel_width)};
}

Frame frame_of(const WindowGeometry& w, int width) {
  return {.height = w.height,
          .width = w.width,
          .packs = w.channels / width,
          .padded_height = w.pad_top + w.height + w.pad_bottom,
          .padded_width = w.pad_left + w.width + w.pad_right,
          .top = w.pad_top,
          .left = w.pad_left};
}

}  // namespace

void add_bias(const TensorView& values, const TensorView& bias, bool relu, cudaStream_t stream) {
  if (values.empty() || (bias.empty() && !relu)) return;
  const auto channels = static_cast<std::int64_t>(bias.empty() ? values.size() : bias.size());
  with_width(values.type(), channels,
             [&]<typename T, int kWidth>(T, std::integral_constant<int, kWidth>) {
               launch(add_bias_rows<T, kWidth>, blocks_for(values.size() / kWidth), kThreads,
                      stream, data<T>(values), data<T>(bias), relu,
                      static_cast<std::int64_t>(values.size()) / kWidth, channels);
             });
}

void column_sums(const TensorView& values, const ChannelLayout& layout, void* partials, float* sums,
                 cudaStream_t stream) {
  auto* const pairs = static_cast<Pair*>(partials);
  with_width(values.type(), layout.channels,
             [&]<typename T, int kWidth>(T, std::integral_constant<int, kWidth>) {
               launch(column_sums_of_rows<T, kWidth>, grid_of(layout), kRowThreads, stream,
                      data<T>(values), layout, pairs);
             });
  launch(add_column_sums, sum_blocks(layout.channels), kSumThreads, stream, pairs, layout, sums);
}

void pad_image(const TensorView& image, const WindowGeometry& window, std::int64_t batch,
               const TensorView& padded, cudaStream_t stream) {
  with_width(image.type(), window.channels,
             [&]<typename T, int kWidth>(T, std::integral_constant<int, kWidth>) {
               const Frame frame = frame_of(window, kWidth);
               const std::int64_t count =
                   batch * frame.padded_height * frame.padded_width * frame.packs;
               launch(pad<T, kWidth>, blocks_for(static_cast<std::size_t>(count)), kThreads, stream,
                      data<T>(image), frame, count, data<T>(padded));
             });
}

void crop_image(const TensorView& padded, const WindowGeometry& window, std::int64_t batch,
                const TensorView& image, cudaStream_t stream) {
  with_width(image.type(), window.channels,
             [&]<typename T, int kWidth>(T, std::integral_constant<int, kWidth>) {
               const Frame frame = frame_of(window, kWidth);
               const std::int64_t count = batch * frame.height * frame.width * frame.packs;
               launch(crop<T, kWidth>, blocks_for(static_cast<std::size_t>(count)), kThreads,
                      stream, data<T>(padded), frame, count, data<T>(image));
             });
}

void fold_image(const TensorView& image, const Folding& folding, std::int64_t batch,
                const TensorView& folded, cudaStream_t stream) {
  with_type(image.type(), [&]<typename T>(T) {
    launch(fold_rows<T>, static_cast<unsigned>(batch * folding.folded_window.height), kThreads,
           stream, data<T>(image), fold_of(folding), data<T>(folded));
  });
}

void fold_kernel(const TensorView& kernel, const Folding& folding, const TensorView& folded,
                 cudaStream_t stream) {
  with_type(kernel.type(), [&]<typename T>(T) {
    launch(fold_taps<T>, blocks_for(folded.size()), kThreads, stream, data<T>(kernel),
           fold_of(folding), static_cast<unsigned>(folded.size()), data<T>(folded));
  });
}

void unfold_kernel(const TensorView& folded, const Folding& folding, const TensorView& kernel,
                   cudaStream_t stream) {
  with_type(kernel.type(), [&]<typename T>(T) {
    launch(unfold_taps<T>, blocks_for(kernel.size()), kThreads, stream, data<T>(folded),
           fold_of(folding), static_cast<unsigned>(kernel.size()), data<T>(kernel));
  });
}

}  // namespace lockstep::inline v0::model::cuda
