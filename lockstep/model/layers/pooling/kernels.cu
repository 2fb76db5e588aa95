#include "lockstep/model/layers/pooling/kernels.h"

#include <limits>

#include "lockstep/device/cuda/launch.h"
#include "lockstep/model/cuda/elements.h"

namespace lockstep::inline v0::model::cuda {
namespace {

using device::cuda::launch;

// WindowGeometry in 32 bits, for fast index arithmetic on a GPU.
struct Window {
  int height, width, channels;
  int kernel_height, kernel_width;
  int stride_height, stride_width;
  int output_height, output_width;
  int pad_top, pad_left;

  explicit Window(const WindowGeometry& w)
      : height(static_cast<int>(w.height)),
        width(static_cast<int>(w.width)),
        channels(static_cast<int>(w.channels)),
        kernel_height(static_cast<int>(w.kernel_height)),
        kernel_width(static_cast<int>(w.kernel_width)),
        stride_height(static_cast<int>(w.stride_height)),
        stride_width(static_cast<int>(w.stride_width)),
        output_height(static_cast<int>(w.output_height)),
        output_width(static_cast<int>(w.output_width)),
        pad_top(static_cast<int>(w.pad_top)),
        pad_left(static_cast<int>(w.pad_left)) {}
};

// A half-open range.
struct Span {
  int begin, end;
  __device__ int size() const { return end - begin; }
};

// The range that window `output` covers on an axis of `extent`.
__device__ inline Span covered(int output, int stride, int pad, int kernel, int extent) {
  const int begin = output * stride - pad;
  const int end = begin + kernel;
  return {begin < 0 ? 0 : begin, end > extent ? extent : end};
}

// The windows that cover `input`.
__device__ inline Span covering(int input, int stride, int pad, int kernel, int outputs) {
  const int reach = input + pad - kernel;  // the last start that does not reach the input
  const int begin = reach < 0 ? 0 : reach / stride + 1;
  const int end = (input + pad) / stride + 1;
  return {begin, end > outputs ? outputs : end};
}

// A position in an image array and its first channel.
struct Place {
  std::int64_t image;
  int row, column, channel;
};

template <int kWidth>
__device__ Place place_of(std::int64_t index, int height, int width, int channels) {
  const int packs = channels / kWidth;
  Place place;
  place.channel = static_cast<int>(index % packs) * kWidth;
  index /= packs;
  place.column = static_cast<int>(index % width);
  index /= width;
  place.row = static_cast<int>(index % height);
  place.image = index / height;
  return place;
}

__device__ inline std::int64_t at(std::int64_t image, int row, int column, int channel, int height,
                                  int width, int channels) {
  return ((image * height + row) * width + column) * channels + channel;
}

// Calls body(row, column) for every input element that the window of `out` covers, row by row.
template <typename Body>
__device__ void each_covered(const Window& w, const Place& out, Body body) {
  const Span rows = covered(out.row, w.stride_height, w.pad_top, w.kernel_height, w.height);
  const Span columns = covered(out.column, w.stride_width, w.pad_left, w.kernel_width, w.width);
  for (int row = rows.begin; row < rows.end; ++row)
    for (int column = columns.begin; column < columns.end; ++column) body(row, column);
}

// Calls body(row, column) for every window that covers the input element `in`.
template <typename Body>
__device__ void each_covering(const Window& w, const Place& in, Body body) {
  const Span rows = covering(in.row, w.stride_height, w.pad_top, w.kernel_height, w.output_height);
  const Span columns =
      covering(in.column, w.stride_width, w.pad_left, w.kernel_width, w.output_width);
  for (int row = rows.begin; row < rows.end; ++row)
    for (int column = columns.begin; column < columns.end; ++column) body(row, column);
}

__device__ inline int elements_covered(const Window& w, int row, int column) {
  return covered(row, w.stride_height, w.pad_top, w.kernel_height, w.height).size() *
         covered(column, w.stride_width, w.pad_left, w.kernel_width, w.width).size();
}

// The position of the input element (row, column) in the window of (out_row, out_column).
template <typename Index>
__device__ Index place_in_window(const Window& w, int row, int column, int out_row,
                                 int out_column) {
  const int window_row = row - (out_row * w.stride_height - w.pad_top);
  const int window_column = column - (out_column * w.stride_width - w.pad_left);
  return static_cast<Index>(window_row * w.kernel_width + window_column);
}

template <typename T, int kWidth>
__device__ Values<T, kWidth> load_input(const T* input, const Window& w, const Place& place,
                                        int row, int column) {
  return load<T, kWidth>(
      input + at(place.image, row, column, place.channel, w.height, w.width, w.channels));
}

// Positions in windows for the elements of one thread, read and written together.
template <typename Index, int kWidth>
struct alignas(kWidth * sizeof(Index) < kPackBytes ? kWidth * sizeof(Index) : kPackBytes) Places {
  Index elements[kWidth];
};

// Calls body(index of the pack) in a grid-stride loop over packs of channels.
template <typename Body>
__device__ void each_pack(std::int64_t count, Body body) {
  for (auto index = static_cast<std::int64_t>(first_index()); index < count;
       index += static_cast<std::int64_t>(index_stride()))
    body(index);
}

template <typename T, typename Index, int kWidth>
__global__ void max_pool(const T* input, Window w, std::int64_t count, T* output, Index* largest) {
  each_pack(count, [&](std::int64_t index) {
    const Place out = place_of<kWidth>(index, w.output_height, w.output_width, w.channels);
    Values<T, kWidth> best{};
    Places<Index, kWidth> where{};
    bool first = true;
    each_covered(w, out, [&](int row, int column) {
      const Values<T, kWidth> values = load_input<T, kWidth>(input, w, out, row, column);
      const auto here = place_in_window<Index>(w, row, column, out.row, out.column);
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        if (first || values.elements[i] > best.elements[i] ||
            values.elements[i] != values.elements[i]) {
          best.elements[i] = values.elements[i];
          where.elements[i] = here;
        }
      first = false;
    });
    store<T, kWidth>(output + index * kWidth, best);
    if (largest != nullptr)
      *reinterpret_cast<Places<Index, kWidth>*>(largest + index * kWidth) = where;
  });
}

template <typename T, typename Index, int kWidth>
__global__ void max_pool_gradient(const T* output_gradient, const Index* largest, Window w,
                                  std::int64_t count, T* input_gradient) {
  each_pack(count, [&](std::int64_t index) {
    const Place in = place_of<kWidth>(index, w.height, w.width, w.channels);
    Values<T, kWidth> sum{};
    each_covering(w, in, [&](int row, int column) {
      const std::int64_t from =
          at(in.image, row, column, in.channel, w.output_height, w.output_width, w.channels);
      const Values<T, kWidth> gradient = load<T, kWidth>(output_gradient + from);
      const auto places = *reinterpret_cast<const Places<Index, kWidth>*>(largest + from);
      const auto here = place_in_window<Index>(w, in.row, in.column, row, column);
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        if (places.elements[i] == here) sum.elements[i] += gradient.elements[i];
    });
    store<T, kWidth>(input_gradient + index * kWidth, sum);
  });
}

template <typename T, int kWidth>
__global__ void mean_pool(const T* input, Window w, std::int64_t count, float scale, T* output) {
  each_pack(count, [&](std::int64_t index) {
    const Place out = place_of<kWidth>(index, w.output_height, w.output_width, w.channels);
    Values<T, kWidth> sum{};
    each_covered(w, out, [&](int row, int column) {
      const Values<T, kWidth> values = load_input<T, kWidth>(input, w, out, row, column);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sum.elements[i] += values.elements[i];
    });
    const float share = scale / static_cast<float>(elements_covered(w, out.row, out.column));
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sum.elements[i] *= share;
    store<T, kWidth>(output + index * kWidth, sum);
  });
}

template <typename T, int kWidth>
__global__ void mean_pool_gradient(const T* output_gradient, Window w, std::int64_t count,
                                   float scale, T* input_gradient) {
  each_pack(count, [&](std::int64_t index) {
    const Place in = place_of<kWidth>(index, w.height, w.width, w.channels);
    Values<T, kWidth> sum{};
    each_covering(w, in, [&](int row, int column) {
      const Values<T, kWidth> gradient =
          load<T, kWidth>(output_gradient + at(in.image, row, column, in.channel, w.output_height,
                                               w.output_width, w.channels));
      const float share = scale / static_cast<float>(elements_covered(w, row, column));
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sum.elements[i] += gradient.elements[i] * share;
    });
    store<T, kWidth>(input_gradient + index * kWidth, sum);
  });
}

bool is_small(const WindowGeometry& window) {
  return window.kernel_height * window.kernel_width <= std::numeric_limits<std::uint8_t>::max();
}

// Calls function(Index{}) with the type that stores a position in a window.
template <typename Function>
void with_index(const WindowGeometry& window, Function&& function) {
  if (is_small(window))
    function(std::uint8_t{});
  else
    function(std::int32_t{});
}

std::int64_t outputs_of(const WindowGeometry& w, std::int64_t batch) {
  return batch * w.output_height * w.output_width * w.channels;
}

}  // namespace

std::size_t largest_bytes(const WindowGeometry& window, std::int64_t batch) {
  const auto outputs = static_cast<std::size_t>(outputs_of(window, batch));
  return outputs * (is_small(window) ? sizeof(std::uint8_t) : sizeof(std::int32_t));
}

void max_pool_forward(const TensorView& input, const WindowGeometry& window, std::int64_t batch,
                      const TensorView& output, void* largest, cudaStream_t stream) {
  with_width(input.type(), window.channels,
             [&]<typename T, int kWidth>(T, std::integral_constant<int, kWidth>) {
               with_index(window, [&]<typename Index>(Index) {
                 const std::int64_t count = outputs_of(window, batch) / kWidth;
                 launch(max_pool<T, Index, kWidth>, blocks_for(static_cast<std::size_t>(count)),
                        kThreads, stream, data<T>(input), Window(window), count, data<T>(output),
                        static_cast<Index*>(largest));
               });
             });
}

void max_pool_backward(const TensorView& output_gradient, const void* largest,
                       const WindowGeometry& window, std::int64_t batch,
                       const TensorView& input_gradient, cudaStream_t stream) {
  with_width(input_gradient.type(), window.channels,
             [&]<typename T, int kWidth>(T, std::integral_constant<int, kWidth>) {
               with_index(window, [&]<typename Index>(Index) {
                 const std::int64_t count =
                     batch * window.height * window.width * window.channels / kWidth;
                 launch(max_pool_gradient<T, Index, kWidth>,
                        blocks_for(static_cast<std::size_t>(count)), kThreads, stream,
                        data<T>(output_gradient), static_cast<const Index*>(largest),
                        Window(window), count, data<T>(input_gradient));
               });
             });
}

void average_pool_forward(const TensorView& input, const WindowGeometry& window, std::int64_t batch,
                          float scale, const TensorView& output, cudaStream_t stream) {
  with_width(input.type(), window.channels,
             [&]<typename T, int kWidth>(T, std::integral_constant<int, kWidth>) {
               const std::int64_t count = outputs_of(window, batch) / kWidth;
               launch(mean_pool<T, kWidth>, blocks_for(static_cast<std::size_t>(count)), kThreads,
                      stream, data<T>(input), Window(window), count, scale, data<T>(output));
             });
}

void average_pool_backward(const TensorView& output_gradient, const WindowGeometry& window,
                           std::int64_t batch, float scale, const TensorView& input_gradient,
                           cudaStream_t stream) {
  with_width(input_gradient.type(), window.channels,
             [&]<typename T, int kWidth>(T, std::integral_constant<int, kWidth>) {
               const std::int64_t count =
                   batch * window.height * window.width * window.channels / kWidth;
               launch(mean_pool_gradient<T, kWidth>, blocks_for(static_cast<std::size_t>(count)),
                      kThreads, stream, data<T>(output_gradient), Window(window), count, scale,
                      data<T>(input_gradient));
             });
}

}  // namespace lockstep::inline v0::model::cuda
