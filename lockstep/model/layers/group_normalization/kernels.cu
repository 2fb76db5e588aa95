#include "lockstep/model/layers/group_normalization/kernels.h"

#include <algorithm>

#include "lockstep/device/cuda/launch.h"
#include "lockstep/model/cuda/channels.h"
#include "lockstep/model/cuda/elements.h"

namespace lockstep::inline v0::model::cuda {
namespace {

using device::cuda::launch;

// Calls each(index, channel) for this thread's elements of a group.
template <typename Each>
__device__ void for_group(const GroupNormalizationSpec& spec, std::int64_t group, Each each) {
  const std::int64_t width = spec.width();
  const std::int64_t first = group % spec.groups * width;
  const std::int64_t begin = group / spec.groups * spec.positions * spec.channels;
  for (std::int64_t i = threadIdx.x; i < spec.positions * width; i += blockDim.x) {
    const std::int64_t channel = first + i % width;
    each(begin + i / width * spec.channels + channel, channel);
  }
}

// A block processes one group of a sample at a time.
template <typename T>
__global__ void normalize_each_group(const T* input, const float* gamma, const float* beta,
                                     GroupNormalizationSpec spec, T* output,
                                     GroupStatistics* statistics) {
  const auto count = static_cast<float>(spec.positions * spec.width());
  for (std::int64_t group = blockIdx.x; group < spec.samples * spec.groups; group += gridDim.x) {
    float sum = 0;
    for_group(spec, group, [&](std::int64_t i, std::int64_t) { sum += widen(input[i]); });
    const float mean = block_sum_for_all(sum) / count;
    float squares = 0;
    for_group(spec, group, [&](std::int64_t i, std::int64_t) {
      const float centered = widen(input[i]) - mean;
      squares += centered * centered;
    });
    const float inverse = 1 / sqrtf(block_sum_for_all(squares) / count + spec.epsilon);
    for_group(spec, group, [&](std::int64_t i, std::int64_t channel) {
      const float scale = gamma == nullptr ? 1.0f : gamma[channel];
      const float shift = beta == nullptr ? 0.0f : beta[channel];
      output[i] = narrow<T>((widen(input[i]) - mean) * inverse * scale + shift);
    });
    if (threadIdx.x == 0 && statistics != nullptr) statistics[group] = {mean, inverse};
  }
}

template <typename T>
__global__ void gradient_of_each_group(const T* input, const T* output_gradient,
                                       const GroupStatistics* statistics, const float* gamma,
                                       GroupNormalizationSpec spec, T* input_gradient) {
  const auto count = static_cast<float>(spec.positions * spec.width());
  for (std::int64_t group = blockIdx.x; group < spec.samples * spec.groups; group += gridDim.x) {
    const GroupStatistics own = statistics[group];
    const auto normalized = [&](std::int64_t i) {
      return (widen(input[i]) - own.mean) * own.inverse_deviation;
    };
    const auto scaled = [&](std::int64_t i, std::int64_t channel) {
      return widen(output_gradient[i]) * (gamma == nullptr ? 1.0f : gamma[channel]);
    };
    float sum = 0;
    float products = 0;
    for_group(spec, group, [&](std::int64_t i, std::int64_t channel) {
      const float g = scaled(i, channel);
      sum += g;
      products += g * normalized(i);
    });
    const float mean = block_sum_for_all(sum) / count;
    const float slope = block_sum_for_all(products) / count;
    for_group(spec, group, [&](std::int64_t i, std::int64_t channel) {
      input_gradient[i] =
          narrow<T>((scaled(i, channel) - mean - normalized(i) * slope) * own.inverse_deviation);
    });
  }
}

// A block sums some neighboring channels, each with several threads.
constexpr int kColumns = 32;
template <typename T>
__global__ void gradients_of_channels(const T* input, const T* output_gradient,
                                      const GroupStatistics* statistics,
                                      GroupNormalizationSpec spec, float* gamma_gradient,
                                      float* beta_gradient) {
  constexpr int kLanes = static_cast<int>(kThreads) / kColumns;
  __shared__ float products[kThreads];
  __shared__ float sums[kThreads];
  const auto thread = static_cast<int>(threadIdx.x);
  const std::int64_t channel = static_cast<std::int64_t>(blockIdx.x) * kColumns + thread % kColumns;
  products[thread] = sums[thread] = 0;
  if (channel < spec.channels)
    for (std::int64_t row = thread / kColumns; row < spec.samples * spec.positions; row += kLanes) {
      const std::int64_t i = row * spec.channels + channel;
      const GroupStatistics own =
          statistics[row / spec.positions * spec.groups + channel / spec.width()];
      const float dy = widen(output_gradient[i]);
      sums[thread] += dy;
      products[thread] += dy * (widen(input[i]) - own.mean) * own.inverse_deviation;
    }
  __syncthreads();
  for (int half = kLanes / 2; half > 0; half /= 2) {
    if (thread < half * kColumns) {
      sums[thread] += sums[thread + half * kColumns];
      products[thread] += products[thread + half * kColumns];
    }
    __syncthreads();
  }
  if (thread >= kColumns || channel >= spec.channels) return;
  if (gamma_gradient != nullptr) gamma_gradient[channel] = products[thread];
  if (beta_gradient != nullptr) beta_gradient[channel] = sums[thread];
}

unsigned group_blocks(const GroupNormalizationSpec& spec) {
  constexpr std::int64_t kMaxBlocks = 4096;
  return static_cast<unsigned>(std::min(spec.samples * spec.groups, kMaxBlocks));
}

}  // namespace

void normalize_groups(const TensorView& input, const GroupNormalizationSpec& spec,
                      const float* gamma, const float* beta, const TensorView& output,
                      GroupStatistics* statistics, cudaStream_t stream) {
  with_type(input.type(), [&]<typename T>(T) {
    launch(normalize_each_group<T>, group_blocks(spec), kThreads, stream, data<T>(input), gamma,
           beta, spec, data<T>(output), statistics);
  });
}

void group_scale_gradients(const TensorView& input, const TensorView& output_gradient,
                           const GroupStatistics* statistics, const GroupNormalizationSpec& spec,
                           float* gamma_gradient, float* beta_gradient, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((spec.channels + kColumns - 1) / kColumns);
  with_type(input.type(), [&]<typename T>(T) {
    launch(gradients_of_channels<T>, blocks, kThreads, stream, data<T>(input),
           data<T>(output_gradient), statistics, spec, gamma_gradient, beta_gradient);
  });
}

void group_input_gradients(const TensorView& input, const TensorView& output_gradient,
                           const GroupStatistics* statistics, const GroupNormalizationSpec& spec,
                           const float* gamma, const TensorView& input_gradient,
                           cudaStream_t stream) {
  with_type(input.type(), [&]<typename T>(T) {
    launch(gradient_of_each_group<T>, group_blocks(spec), kThreads, stream, data<T>(input),
           data<T>(output_gradient), statistics, gamma, spec, data<T>(input_gradient));
  });
}

}  // namespace lockstep::inline v0::model::cuda
