#include "lockstep/model/cuda/bias.h"

#include "lockstep/device/cuda/launch.h"
#include "lockstep/model/cuda/channel_reduction.h"

namespace lockstep::model::cuda {
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

}  // namespace lockstep::model::cuda
