#include "lockstep/model/layers/batch_normalization/kernels.h"

#include "lockstep/device/cuda/launch.h"
#include "lockstep/model/cuda/channel_reduction.h"

namespace lockstep::model::cuda {
namespace {

using device::cuda::launch;

// Sums of x - k and of its square, where k is the channel's first value. This keeps the
// cancellation in the variance small.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    statistics_of_rows(const T* input, std::int64_t rows, std::int64_t channels, Pair* partials) {
  const Walk<kWidth> walk(channels);
  const std::int64_t channel = walk.channel;
  Pair sums[kWidth];
  if (channel < channels) {
    const Values<T, kWidth> shift = load<T, kWidth>(input + channel);
    for (std::int64_t row = walk.first_row; row < rows; row += walk.row_stride) {
      const Values<T, kWidth> values = load<T, kWidth>(input + row * channels + channel);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const float distance = values.elements[i] - shift.elements[i];
        sums[i].first += distance;
        sums[i].second += distance * distance;
      }
    }
  }
  add_lanes<kWidth>(sums, walk, channels, partials);
}

template <typename T>
__global__ void __launch_bounds__(kSumThreads)
    add_statistics(const T* input, const Pair* partials, int row_blocks, std::int64_t rows,
                   std::int64_t channels, float* means, float* squares, float* count) {
  const WidePair sum = sum_partials(partials, row_blocks, channels);
  if (!has_sum(channels)) return;
  const std::int64_t channel = summed_channel();
  const double shift = static_cast<double>(widen(input[channel]));
  const double mean = sum.first / static_cast<double>(rows);
  const double square = sum.second - sum.first * mean;
  means[channel] = static_cast<float>(shift + mean);
  squares[channel] = square < 0 ? 0.0f : static_cast<float>(square);
  if (channel == 0) *count = static_cast<float>(rows);
}

// Unlike above, the squares were summed in float32 without subtracting a value first. With r =
// |mean| / deviation, the relative error of the variance is about r^2 / 2^24, times the error of
// the sums. The values are 16-bit, mostly convolutions of normalized inputs, so r is small, not in
// the hundreds. If r is large, the rounding of each value already blurs the variance by as much: it
// is noise of variance r^2 / 2^24 in float16 and 64 times that in bfloat16.
__global__ void divide_sums(ChannelSums sums, std::int64_t rows, std::size_t channels, float* means,
                            float* squares, float* count) {
  const std::size_t c = first_index();
  if (c >= channels) return;
  const double sum = static_cast<double>(sums.values[c]);
  const double mean = sum / static_cast<double>(rows);
  const double square = static_cast<double>(sums.squares[c]) - sum * mean;
  means[c] = static_cast<float>(mean);
  squares[c] = square < 0 ? 0.0f : static_cast<float>(square);
  if (c == 0) *count = static_cast<float>(rows);
}

__global__ void finish_channels(StatisticsArguments a) {
  const std::size_t c = first_index();
  if (c >= a.layout.channels) return;
  const BatchMoments all = a.layout.together(a.moments, c);
  if (c == 0) *a.count = all.count;
  if (all.count == 0) return;
  a.means[c] = all.mean;
  a.inverse_deviations[c] = 1 / sqrtf(biased_variance(all) + a.epsilon);
  a.moving_mean[c] = moved(a.moving_mean[c], all.mean, a.momentum);
  a.moving_variance[c] = moved(a.moving_variance[c], unbiased_variance(all), a.momentum);
}

__global__ void invert(const float* variances, std::int64_t channels, float epsilon,
                       float* inverse_deviations) {
  const auto c = static_cast<std::int64_t>(first_index());
  if (c < channels) inverse_deviations[c] = 1 / sqrtf(variances[c] + epsilon);
}

// The scale of the channels that one thread processes in every step of its loop.
template <int kWidth>
struct ScaleOf {
  float mean[kWidth], factor[kWidth], inverse_deviation[kWidth], beta[kWidth];

  __device__ ScaleOf(const ChannelScale& scale, std::int64_t channel) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      mean[i] = scale.means[channel + i];
      inverse_deviation[i] = scale.inverse_deviations[channel + i];
      factor[i] = inverse_deviation[i] * scale.gamma[channel + i];
      beta[i] = scale.beta[channel + i];
    }
  }
};

template <typename T, int kWidth>
__global__ void normalize_rows(const T* input, const T* residual, ChannelScale scale, bool relu,
                               std::int64_t rows, std::int64_t channels, T* output) {
  const std::int64_t packs = channels / kWidth;
  const auto first = static_cast<std::int64_t>(first_index());
  const auto stride = static_cast<std::int64_t>(index_stride());
  if (first >= rows * packs) return;
  const bool stays = stride % packs == 0;  // then a thread always processes the same channels
  ScaleOf<kWidth> s(scale, first % packs * kWidth);
  for (std::int64_t index = first; index < rows * packs; index += stride) {
    if (!stays) s = ScaleOf<kWidth>(scale, index % packs * kWidth);
    Values<T, kWidth> values = load<T, kWidth>(input + index * kWidth);
    Values<T, kWidth> added{};
    if (residual != nullptr) added = load<T, kWidth>(residual + index * kWidth);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float y =
          (values.elements[i] - s.mean[i]) * s.factor[i] + s.beta[i] + added.elements[i];
      values.elements[i] = relu && y <= 0 ? 0.0f : y;
    }
    store<T, kWidth>(output + index * kWidth, values);
  }
}

// The terms subtracted from the gradient of an input, for the channels of one thread.
template <int kWidth>
struct ShareOf {
  float gradient[kWidth], product[kWidth];

  __device__ ShareOf(const float* sums, std::int64_t channels, std::int64_t channel) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      gradient[i] = sums[channel + i];
      product[i] = sums[channels + channel + i];
    }
  }
};

// The gradient after the ReLU mask.
template <typename T, int kWidth>
__device__ Values<T, kWidth> masked(const T* output, const T* gradient, bool relu,
                                    std::int64_t at) {
  Values<T, kWidth> g = load<T, kWidth>(gradient + at);
  if (!relu) return g;
  const Values<T, kWidth> y = load<T, kWidth>(output + at);
#pragma unroll
  for (int i = 0; i < kWidth; ++i)
    if (!(y.elements[i] > 0)) g.elements[i] = 0;
  return g;
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    gradient_sums_of_rows(const T* input, const T* output, const T* gradient, bool relu,
                          ChannelScale scale, std::int64_t rows, std::int64_t channels,
                          Pair* partials) {
  const Walk<kWidth> walk(channels);
  const std::int64_t channel = walk.channel;
  Pair sums[kWidth];
  if (channel < channels) {
    const ScaleOf<kWidth> s(scale, channel);
    for (std::int64_t row = walk.first_row; row < rows; row += walk.row_stride) {
      const std::int64_t at = row * channels + channel;
      const Values<T, kWidth> x = load<T, kWidth>(input + at);
      const Values<T, kWidth> g = masked<T, kWidth>(output, gradient, relu, at);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        sums[i].first += g.elements[i];
        sums[i].second += g.elements[i] * (x.elements[i] - s.mean[i]) * s.inverse_deviation[i];
      }
    }
  }
  add_lanes<kWidth>(sums, walk, channels, partials);
}

__global__ void __launch_bounds__(kSumThreads)
    add_gradient_sums(const Pair* partials, int row_blocks, std::int64_t channels, float* sums) {
  const std::int64_t channel = summed_channel();
  const WidePair sum = sum_partials(partials, row_blocks, channels);
  if (!has_sum(channels)) return;
  sums[channel] = static_cast<float>(sum.first);
  sums[channels + channel] = static_cast<float>(sum.second);
}

template <typename T, int kWidth>
__global__ void input_gradient_of_rows(const T* input, const T* output, const T* gradient,
                                       bool relu, ChannelScale scale, const float* sums,
                                       const float* count, std::int64_t rows, std::int64_t channels,
                                       T* input_gradient, T* residual_gradient) {
  const std::int64_t packs = channels / kWidth;
  const float total = *count;
  const auto first = static_cast<std::int64_t>(first_index());
  const auto stride = static_cast<std::int64_t>(index_stride());
  if (first >= rows * packs) return;
  const bool stays = stride % packs == 0;
  ScaleOf<kWidth> s(scale, first % packs * kWidth);
  ShareOf<kWidth> share(sums, channels, first % packs * kWidth);
  for (std::int64_t index = first; index < rows * packs; index += stride) {
    const std::int64_t at = index * kWidth;
    if (!stays) {
      s = ScaleOf<kWidth>(scale, index % packs * kWidth);
      share = ShareOf<kWidth>(sums, channels, index % packs * kWidth);
    }
    Values<T, kWidth> x = load<T, kWidth>(input + at);
    const Values<T, kWidth> g = masked<T, kWidth>(output, gradient, relu, at);
    if (residual_gradient != nullptr) store<T, kWidth>(residual_gradient + at, g);
    if (input_gradient == nullptr) continue;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float normal = normalized(x.elements[i], s.mean[i], s.inverse_deviation[i]);
      x.elements[i] = model::input_gradient(g.elements[i], normal, share.gradient[i],
                                            share.product[i], total, s.factor[i]);
    }
    store<T, kWidth>(input_gradient + at, x);
  }
}

}  // namespace

void batch_statistics(const TensorView& input, const ChannelLayout& rows, void* partials,
                      const MomentsLayout& layout, std::size_t member, float* moments,
                      cudaStream_t stream) {
  auto* const pairs = static_cast<Pair*>(partials);
  with_width(input.type(), rows.channels,
             [&]<typename T, int kWidth>(T, std::integral_constant<int, kWidth>) {
               launch(statistics_of_rows<T, kWidth>, grid_of(rows, kWidth), kThreads, stream,
                      data<T>(input), rows.rows, rows.channels, pairs);
               launch(add_statistics<T>, sum_blocks(rows.channels), kSumThreads, stream,
                      data<T>(input), pairs, rows.row_blocks, rows.rows, rows.channels,
                      moments + layout.mean(member, 0), moments + layout.squares(member, 0),
                      moments + layout.count(member));
             });
}

void moments_of_sums(const ChannelSums& sums, std::int64_t rows, const MomentsLayout& layout,
                     std::size_t member, float* moments, cudaStream_t stream) {
  launch(divide_sums, blocks_for(layout.channels), kThreads, stream, sums, rows, layout.channels,
         moments + layout.mean(member, 0), moments + layout.squares(member, 0),
         moments + layout.count(member));
}

void finish_statistics(const StatisticsArguments& arguments, cudaStream_t stream) {
  launch(finish_channels, blocks_for(arguments.layout.channels), kThreads, stream, arguments);
}

void invert_deviations(const float* variances, std::int64_t channels, float epsilon,
                       float* inverse_deviations, cudaStream_t stream) {
  launch(invert, blocks_for(static_cast<std::size_t>(channels)), kThreads, stream, variances,
         channels, epsilon, inverse_deviations);
}

void normalize(const TensorView& input, const TensorView& residual, const ChannelScale& scale,
               bool relu, std::int64_t channels, const TensorView& output, cudaStream_t stream) {
  const std::int64_t rows = static_cast<std::int64_t>(input.size()) / channels;
  with_width(
      input.type(), channels, [&]<typename T, int kWidth>(T, std::integral_constant<int, kWidth>) {
        launch(normalize_rows<T, kWidth>, blocks_for(input.size() / kWidth), kThreads, stream,
               data<T>(input), data<T>(residual), scale, relu, rows, channels, data<T>(output));
      });
}

void gradient_sums(const TensorView& input, const TensorView& output,
                   const TensorView& output_gradient, bool relu, const ChannelScale& scale,
                   const ChannelLayout& layout, void* partials, float* sums, cudaStream_t stream) {
  auto* const pairs = static_cast<Pair*>(partials);
  with_width(input.type(), layout.channels,
             [&]<typename T, int kWidth>(T, std::integral_constant<int, kWidth>) {
               launch(gradient_sums_of_rows<T, kWidth>, grid_of(layout, kWidth), kThreads, stream,
                      data<T>(input), data<T>(output), data<T>(output_gradient), relu, scale,
                      layout.rows, layout.channels, pairs);
             });
  launch(add_gradient_sums, sum_blocks(layout.channels), kSumThreads, stream, pairs,
         layout.row_blocks, layout.channels, sums);
}

void input_gradient(const TensorView& input, const TensorView& output,
                    const TensorView& output_gradient, bool relu, const ChannelScale& scale,
                    const float* sums, const float* count, std::int64_t channels,
                    const TensorView& input_gradient, const TensorView& residual_gradient,
                    cudaStream_t stream) {
  const std::int64_t rows = static_cast<std::int64_t>(input.size()) / channels;
  with_width(
      input.type(), channels, [&]<typename T, int kWidth>(T, std::integral_constant<int, kWidth>) {
        launch(input_gradient_of_rows<T, kWidth>, blocks_for(input.size() / kWidth), kThreads,
               stream, data<T>(input), data<T>(output), data<T>(output_gradient), relu, scale, sums,
               count, rows, channels, data<T>(input_gradient), data<T>(residual_gradient));
      });
}

}  // namespace lockstep::model::cuda
