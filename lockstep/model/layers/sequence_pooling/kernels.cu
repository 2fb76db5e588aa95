#include "lockstep/device/cuda/launch.h"
#include "lockstep/model/cuda/elements.h"
#include "lockstep/model/layers/sequence_pooling/kernels.h"

namespace lockstep::inline v0::model::cuda {
namespace {

using device::cuda::launch;

// The segments of a sample; null if all positions count.
__device__ inline const std::int32_t* sample_segments(const std::int32_t* segments,
                                                      std::size_t sample, std::size_t positions) {
  return segments == nullptr ? nullptr : segments + sample * positions;
}

// The weight of each position that counts; 0 if there is none.
__device__ inline float position_weight(const std::int32_t* segments, std::size_t positions) {
  std::size_t count = positions;
  if (segments != nullptr) {
    count = 0;
    for (std::size_t i = 0; i < positions; ++i) count += segments[i] != 0 ? 1 : 0;
  }
  return count > 0 ? 1 / static_cast<float>(count) : 0;
}

// A thread adds up a pack of elements of all positions, in their order.
template <typename T, int kWidth>
__global__ void mean_positions(const T* input, const std::int32_t* all_segments,
                               std::size_t positions, std::size_t packs, std::size_t count,
                               T* output) {
  for (std::size_t i = first_index(); i < count; i += index_stride()) {
    const std::size_t sample = i / packs;
    const std::int32_t* const segments = sample_segments(all_segments, sample, positions);
    Values<T, kWidth> sum{};
    for (std::size_t position = 0; position < positions; ++position) {
      if (segments != nullptr && segments[position] == 0) continue;
      const std::size_t from = (sample * positions + position) * packs + i % packs;
      const Values<T, kWidth> values = load<T, kWidth>(input + from * kWidth);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) sum.elements[k] += values.elements[k];
    }
    const float share = position_weight(segments, positions);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) sum.elements[k] *= share;
    store<T, kWidth>(output + i * kWidth, sum);
  }
}

template <typename T, int kWidth>
__global__ void mean_positions_gradient(const T* output_gradient, const std::int32_t* all_segments,
                                        std::size_t positions, std::size_t packs, std::size_t count,
                                        T* input_gradient) {
  for (std::size_t i = first_index(); i < count; i += index_stride()) {
    const std::size_t sample = i / packs;
    const std::int32_t* const segments = sample_segments(all_segments, sample, positions);
    const float share = position_weight(segments, positions);
    const Values<T, kWidth> gradient = load<T, kWidth>(output_gradient + i * kWidth);
    for (std::size_t position = 0; position < positions; ++position) {
      const float factor = segments != nullptr && segments[position] == 0 ? 0 : share;
      Values<T, kWidth> values{};
#pragma unroll
      for (int k = 0; k < kWidth; ++k) values.elements[k] = gradient.elements[k] * factor;
      const std::size_t to = (sample * positions + position) * packs + i % packs;
      store<T, kWidth>(input_gradient + to * kWidth, values);
    }
  }
}

}  // namespace

void sequence_mean_forward(const TensorView& input, std::span<const std::int32_t> segments,
                           const SequencePoolingSpec& spec, const TensorView& output,
                           cudaStream_t stream) {
  with_width(input.type(), spec.width,
             [&]<typename T, int kWidth>(T, std::integral_constant<int, kWidth>) {
               const std::size_t count = output.size() / kWidth;
               launch(mean_positions<T, kWidth>, blocks_for(count), kThreads, stream,
                      data<T>(input), segments.data(), static_cast<std::size_t>(spec.positions),
                      static_cast<std::size_t>(spec.width) / kWidth, count, data<T>(output));
             });
}

void sequence_mean_backward(const TensorView& output_gradient,
                            std::span<const std::int32_t> segments, const SequencePoolingSpec& spec,
                            const TensorView& input_gradient, cudaStream_t stream) {
  with_width(
      output_gradient.type(), spec.width,
      [&]<typename T, int kWidth>(T, std::integral_constant<int, kWidth>) {
        const std::size_t count = output_gradient.size() / kWidth;
        launch(mean_positions_gradient<T, kWidth>, blocks_for(count), kThreads, stream,
               data<T>(output_gradient), segments.data(), static_cast<std::size_t>(spec.positions),
               static_cast<std::size_t>(spec.width) / kWidth, count, data<T>(input_gradient));
      });
}

}  // namespace lockstep::inline v0::model::cuda
