#include "lockstep/model/layers/pooling/bilinear_kernels.h"

#include "lockstep/device/cuda/launch.h"
#include "lockstep/model/cuda/elements.h"

namespace lockstep::inline v0::model::cuda {
namespace {

// A pixel of an image array, and its first channel.
struct BilinearPlace {
  std::int64_t image;
  std::uint32_t row, column;
  std::int64_t channel;
};

// The place of the pack with this index in images of `height` x `width`.
template <int kWidth>
__device__ BilinearPlace bilinear_place(std::int64_t index, std::int64_t height, std::int64_t width,
                                        std::int64_t channels) {
  const std::int64_t packs = channels / kWidth;
  BilinearPlace place{};
  place.channel = index % packs * kWidth;
  index /= packs;
  place.column = static_cast<std::uint32_t>(index % width);
  index /= width;
  place.row = static_cast<std::uint32_t>(index % height);
  place.image = index / height;
  return place;
}

// sum += factor * the channels at `from`
template <typename T, int kWidth>
__device__ void add_pixel(const T* from, float factor, Values<T, kWidth>& sum) {
  const Values<T, kWidth> values = load<T, kWidth>(from);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) sum.elements[i] += factor * values.elements[i];
}

template <typename T, int kWidth>
__global__ void enlarge(const T* input, BilinearSpec s, std::int64_t height, std::int64_t width,
                        std::int64_t count, T* output) {
  for (auto index = static_cast<std::int64_t>(first_index()); index < count;
       index += static_cast<std::int64_t>(index_stride())) {
    const BilinearPlace out = bilinear_place<kWidth>(index, height, width, s.channels);
    const BilinearAxis::Sources rows = s.vertical.sources(out.row);
    const BilinearAxis::Sources columns = s.horizontal.sources(out.column);
    const T* const image =
        input + out.image * s.vertical.extent * s.horizontal.extent * s.channels + out.channel;
    const auto at = [&](std::int64_t row, std::int64_t column) {
      return image + (row * s.horizontal.extent + column) * s.channels;
    };
    Values<T, kWidth> sum{};
    add_pixel<T, kWidth>(at(rows.first, columns.first), (1 - rows.weight) * (1 - columns.weight),
                         sum);
    add_pixel<T, kWidth>(at(rows.first, columns.second), (1 - rows.weight) * columns.weight, sum);
    add_pixel<T, kWidth>(at(rows.second, columns.first), rows.weight * (1 - columns.weight), sum);
    add_pixel<T, kWidth>(at(rows.second, columns.second), rows.weight * columns.weight, sum);
    store<T, kWidth>(output + index * kWidth, sum);
  }
}

template <typename T, int kWidth>
__global__ void gather_enlarged(const T* output_gradient, BilinearSpec s, std::int64_t height,
                                std::int64_t width, std::int64_t count, T* input_gradient) {
  for (auto index = static_cast<std::int64_t>(first_index()); index < count;
       index += static_cast<std::int64_t>(index_stride())) {
    const BilinearPlace in =
        bilinear_place<kWidth>(index, s.vertical.extent, s.horizontal.extent, s.channels);
    const T* const image = output_gradient + in.image * height * width * s.channels + in.channel;
    Values<T, kWidth> sum{};
    for (std::uint32_t row = s.vertical.begin(in.row); row < s.vertical.end(in.row); ++row) {
      const float down = s.vertical.share(row, in.row);
      for (std::uint32_t column = s.horizontal.begin(in.column);
           column < s.horizontal.end(in.column); ++column)
        add_pixel<T, kWidth>(image + (row * width + column) * s.channels,
                             down * s.horizontal.share(column, in.column), sum);
    }
    store<T, kWidth>(input_gradient + index * kWidth, sum);
  }
}

}  // namespace

void bilinear_forward(const TensorView& input, const BilinearSpec& spec, const TensorView& output,
                      cudaStream_t stream) {
  with_width(input.type(), spec.channels,
             [&]<typename T, int kWidth>(T, std::integral_constant<int, kWidth>) {
               const auto count = static_cast<std::int64_t>(output.size()) / kWidth;
               device::cuda::launch(enlarge<T, kWidth>, blocks_for(static_cast<std::size_t>(count)),
                                    kThreads, stream, data<T>(input), spec, spec.output_height(),
                                    spec.output_width(), count, data<T>(output));
             });
}

void bilinear_backward(const TensorView& output_gradient, const BilinearSpec& spec,
                       const TensorView& input_gradient, cudaStream_t stream) {
  with_width(input_gradient.type(), spec.channels,
             [&]<typename T, int kWidth>(T, std::integral_constant<int, kWidth>) {
               const auto count = static_cast<std::int64_t>(input_gradient.size()) / kWidth;
               device::cuda::launch(gather_enlarged<T, kWidth>,
                                    blocks_for(static_cast<std::size_t>(count)), kThreads, stream,
                                    data<T>(output_gradient), spec, spec.output_height(),
                                    spec.output_width(), count, data<T>(input_gradient));
             });
}

}  // namespace lockstep::inline v0::model::cuda
