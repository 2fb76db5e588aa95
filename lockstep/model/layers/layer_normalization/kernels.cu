#include "lockstep/model/layers/layer_normalization/kernels.h"

#include <algorithm>

#include "lockstep/device/cuda/launch.h"
#include "lockstep/model/cuda/channel_reduction.h"
#include "lockstep/model/cuda/elements.h"

namespace lockstep::inline v0::model::cuda {
namespace {

using device::cuda::launch;

// A block processes one row at a time.
template <typename T>
__global__ void normalize_each_row(const T* input, const float* gamma, const float* beta,
                                   RowNormalizationSpec spec, T* output,
                                   RowStatistics* statistics) {
  const auto width = static_cast<float>(spec.width);
  for (std::int64_t row = blockIdx.x; row < spec.rows; row += gridDim.x) {
    const T* const from = input + row * spec.width;
    float mean = 0;
    if (spec.centers) {
      float sum = 0;
      for (std::int64_t i = threadIdx.x; i < spec.width; i += blockDim.x) sum += widen(from[i]);
      mean = block_sum_for_all(sum) / width;
    }
    float inverse = 1;
    if (spec.normalizes) {
      float squares = 0;
      for (std::int64_t i = threadIdx.x; i < spec.width; i += blockDim.x) {
        const float centered = widen(from[i]) - mean;
        squares += centered * centered;
      }
      inverse = 1 / sqrtf(block_sum_for_all(squares) / width + spec.epsilon);
    }
    for (std::int64_t i = threadIdx.x; i < spec.width; i += blockDim.x)
      output[row * spec.width + i] =
          narrow<T>((widen(from[i]) - mean) * inverse * (spec.scales ? gamma[i] : 1.0f) +
                    (spec.shifts ? beta[i] : 0.0f));
    if (threadIdx.x == 0 && statistics != nullptr) statistics[row] = {mean, inverse};
  }
}

template <typename T>
__global__ void gradient_of_each_row(const T* input, const T* output_gradient,
                                     const RowStatistics* statistics, const float* gamma,
                                     RowNormalizationSpec spec, T* input_gradient) {
  const auto width = static_cast<float>(spec.width);
  for (std::int64_t row = blockIdx.x; row < spec.rows; row += gridDim.x) {
    const std::int64_t begin = row * spec.width;
    if (!spec.normalizes) {
      for (std::int64_t i = threadIdx.x; i < spec.width; i += blockDim.x)
        input_gradient[begin + i] =
            narrow<T>(widen(output_gradient[begin + i]) * (spec.scales ? gamma[i] : 1.0f));
      continue;
    }
    const RowStatistics row_statistics = statistics[row];
    const auto normalized = [&](std::int64_t i) {
      return (widen(input[begin + i]) - row_statistics.mean) * row_statistics.inverse_deviation;
    };
    const auto scaled = [&](std::int64_t i) {
      return widen(output_gradient[begin + i]) * gamma[i];
    };
    float sum = 0;
    float products = 0;
    for (std::int64_t i = threadIdx.x; i < spec.width; i += blockDim.x) {
      const float g = scaled(i);
      sum += g;
      products += g * normalized(i);
    }
    const float mean = spec.centers ? block_sum_for_all(sum) / width : 0.0f;
    const float slope = block_sum_for_all(products) / width;
    for (std::int64_t i = threadIdx.x; i < spec.width; i += blockDim.x)
      input_gradient[begin + i] =
          narrow<T>((scaled(i) - mean - normalized(i) * slope) * row_statistics.inverse_deviation);
  }
}

// Sums over rows of g and of g * normalized input.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kRowThreads, kRowBlocksPerMultiprocessor)
    scale_gradients_of_rows(const T* input, const T* output_gradient,
                            const RowStatistics* statistics, ChannelLayout layout, Pair* partials) {
  struct Row {
    Stored<T, kWidth> input, gradient;
    RowStatistics statistics;
  };
  const Walk<kWidth> walk(layout);
  Pair sums[kWidth];
  if (walk.channel < layout.channels)
    for_each_row<2>(
        walk, layout.rows,
        [&](std::int64_t row) {
          const std::int64_t offset = row * layout.channels + walk.channel;
          return Row{load_stored<T, kWidth>(input + offset),
                     load_stored<T, kWidth>(output_gradient + offset),
                     statistics == nullptr ? RowStatistics{0, 1} : statistics[row]};
        },
        [&](std::int64_t, const Row& row) {
          const Values<T, kWidth> x = values_of<T, kWidth>(row.input);
          const Values<T, kWidth> g = values_of<T, kWidth>(row.gradient);
#pragma unroll
          for (int i = 0; i < kWidth; ++i) {
            sums[i].first += g.elements[i];
            sums[i].second += g.elements[i] * (x.elements[i] - row.statistics.mean) *
                              row.statistics.inverse_deviation;
          }
        });
  add_lanes<kWidth>(sums, layout, partials);
}

__global__ void __launch_bounds__(kSumThreads)
    add_scale_gradients(const Pair* partials, ChannelLayout layout, float* gamma_gradient,
                        float* beta_gradient) {
  const WidePair sum = sum_partials(partials, layout);
  if (!has_sum(layout.channels)) return;
  if (beta_gradient != nullptr) beta_gradient[summed_channel()] = static_cast<float>(sum.first);
  if (gamma_gradient != nullptr) gamma_gradient[summed_channel()] = static_cast<float>(sum.second);
}

unsigned row_blocks(const RowNormalizationSpec& spec) {
  constexpr std::int64_t kMaxBlocks = 4096;
  return static_cast<unsigned>(std::min(spec.rows, kMaxBlocks));
}

// Whole warps, at most as needed for a row.
unsigned row_threads(const RowNormalizationSpec& spec) {
  const std::int64_t warps = (spec.width + kWarp - 1) / kWarp;
  return static_cast<unsigned>(std::min<std::int64_t>(warps * kWarp, kThreads));
}

}  // namespace

void normalize_samples(const TensorView& input, const RowNormalizationSpec& spec,
                       const float* gamma, const float* beta, const TensorView& output,
                       RowStatistics* statistics, cudaStream_t stream) {
  with_type(input.type(), [&]<typename T>(T) {
    launch(normalize_each_row<T>, row_blocks(spec), row_threads(spec), stream, data<T>(input),
           gamma, beta, spec, data<T>(output), statistics);
  });
}

void scale_gradients(const TensorView& input, const TensorView& output_gradient,
                     const RowStatistics* statistics, const ChannelLayout& layout, void* partials,
                     float* gamma_gradient, float* beta_gradient, cudaStream_t stream) {
  auto* const pairs = static_cast<Pair*>(partials);
  with_width(input.type(), layout.channels,
             [&]<typename T, int kWidth>(T, std::integral_constant<int, kWidth>) {
               launch(scale_gradients_of_rows<T, kWidth>, grid_of(layout), kRowThreads, stream,
                      data<T>(input), data<T>(output_gradient), statistics, layout, pairs);
             });
  launch(add_scale_gradients, sum_blocks(layout.channels), kSumThreads, stream, pairs, layout,
         gamma_gradient, beta_gradient);
}

void sample_gradients(const TensorView& input, const TensorView& output_gradient,
                      const RowStatistics* statistics, const RowNormalizationSpec& spec,
                      const float* gamma, const TensorView& input_gradient, cudaStream_t stream) {
  with_type(input.type(), [&]<typename T>(T) {
    launch(gradient_of_each_row<T>, row_blocks(spec), row_threads(spec), stream, data<T>(input),
           data<T>(output_gradient), statistics, gamma, spec, data<T>(input_gradient));
  });
}

}  // namespace lockstep::inline v0::model::cuda
