#include "lockstep/model/layers/batch_normalization/kernels.h"

#include "lockstep/device/cuda/launch.h"
#include "lockstep/model/cuda/channel_reduction.h"

namespace lockstep::inline v0::model::cuda {
namespace {

using device::cuda::launch;

// Rows that a thread loads before it uses the first: with three blocks on a multiprocessor these
// loads keep 48 KiB in flight there, and fit the registers.
constexpr int kRowsOfOneArray = 4;
constexpr int kRowsOfTwoArrays = 2;

// Sums of x - k and of its square, where k is the channel's first value. This keeps the
// cancellation in the variance small. The last rows are processed first here and in
// gradient_sums_of_rows: the previous kernel has just written them. The next kernel reads the same
// arrays from the first row on, and finds the rows read last in the cache.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kRowThreads, kRowBlocksPerMultiprocessor)
    statistics_of_rows(const T* input, ChannelLayout layout, Pair* partials) {
  const Walk<kWidth> walk(layout);
  Pair sums[kWidth];
  if (walk.channel < layout.channels) {
    const Values<T, kWidth> shift = load<T, kWidth>(input + walk.channel);
    const T* const last = input + (layout.rows - 1) * layout.channels + walk.channel;
    for_each_row<kRowsOfOneArray>(
        walk, layout.rows,
        [&](std::int64_t row) { return load_stored<T, kWidth>(last - row * layout.channels); },
        [&](std::int64_t, const Stored<T, kWidth>& stored) {
          const Values<T, kWidth> values = values_of<T, kWidth>(stored);
#pragma unroll
          for (int i = 0; i < kWidth; ++i) {
            const float distance = values.elements[i] - shift.elements[i];
            sums[i].first += distance;
            sums[i].second += distance * distance;
          }
        });
  }
  add_lanes<kWidth>(sums, layout, partials);
}

__device__ void finish_channel(const StatisticsArguments& a, std::size_t c,
                               const BatchMoments& all) {
  if (c == 0) *a.count = all.count;
  if (all.count == 0) return;
  a.means[c] = all.mean;
  a.inverse_deviations[c] = 1 / sqrtf(biased_variance(all) + a.epsilon);
  a.moving_mean[c] = moved(a.moving_mean[c], all.mean, a.momentum);
  a.moving_variance[c] = moved(a.moving_variance[c], unbiased_variance(all), a.momentum);
}

// The moments of this replica: the statistics, or a row for the exchange with other replicas.
__device__ void store_moments(const StatisticsArguments& a, std::size_t member, std::size_t c,
                              const BatchMoments& own) {
  if (a.moments == nullptr) return finish_channel(a, c, own);
  a.moments[a.layout.mean(member, c)] = own.mean;
  a.moments[a.layout.squares(member, c)] = own.squares;
  if (c == 0) a.moments[a.layout.count(member)] = own.count;
}

template <typename T>
__global__ void __launch_bounds__(kSumThreads)
    add_statistics(const T* input, const Pair* partials, ChannelLayout layout,
                   StatisticsArguments a, std::size_t member) {
  const WidePair sum = sum_partials(partials, layout);
  if (!has_sum(layout.channels)) return;
  const std::int64_t channel = summed_channel();
  const double shift = static_cast<double>(widen(input[channel]));
  const double mean = sum.first / static_cast<double>(layout.rows);
  const double square = sum.second - sum.first * mean;
  store_moments(a, member, static_cast<std::size_t>(channel),
                {static_cast<float>(layout.rows), static_cast<float>(shift + mean),
                 square < 0 ? 0.0f : static_cast<float>(square)});
}

// Unlike above, the squares were summed in float32 without subtracting a value first. With r =
// |mean| / deviation, the relative error of the variance is about r^2 / 2^24, times the error of
// the sums. The values are 16-bit, mostly convolutions of normalized inputs, so r is small, not in
// the hundreds. If r is large, the rounding of each value already distorts the variance by as much:
// it is noise of variance r^2 / 2^24 in float16 and 64 times that in bfloat16.
__global__ void divide_sums(ChannelSums sums, std::int64_t rows, StatisticsArguments a,
                            std::size_t member) {
  const std::size_t c = first_index();
  if (c >= a.layout.channels) return;
  const double sum = static_cast<double>(sums.values[c]);
  const double mean = sum / static_cast<double>(rows);
  const double square = static_cast<double>(sums.squares[c]) - sum * mean;
  store_moments(a, member, c,
                {static_cast<float>(rows), static_cast<float>(mean),
                 square < 0 ? 0.0f : static_cast<float>(square)});
}

__global__ void finish_channels(StatisticsArguments a) {
  const std::size_t c = first_index();
  if (c < a.layout.channels) finish_channel(a, c, a.layout.together(a.moments, c));
}

__global__ void invert(const float* variances, std::int64_t channels, float epsilon,
                       float* inverse_deviations) {
  const auto c = static_cast<std::int64_t>(first_index());
  if (c < channels) inverse_deviations[c] = 1 / sqrtf(variances[c] + epsilon);
}

// The index of a pack in a bit mask: one byte per pack, in order.
template <int kWidth>
struct MaskPlace {
  std::int64_t first, packs;

  __device__ MaskPlace(const Walk<kWidth>& walk, const ChannelLayout& layout)
      : first(walk.channel / kWidth), packs(layout.channels / kWidth) {}
  __device__ std::int64_t operator()(std::int64_t row) const { return first + row * packs; }
};

template <typename T, int kWidth, bool kAdds>
__global__ void __launch_bounds__(kRowThreads, kRowBlocksPerMultiprocessor)
    normalize_rows(const T* input, const T* residual, ChannelScale scale, bool relu,
                   ChannelLayout layout, T* output, std::uint8_t* mask) {
  struct Row {
    Stored<T, kWidth> input;
    std::conditional_t<kAdds, Stored<T, kWidth>, char> residual;
  };
  const Walk<kWidth> walk(layout);
  if (walk.channel >= layout.channels) return;
  const MaskPlace<kWidth> place(walk, layout);
  float mean[kWidth], factor[kWidth], beta[kWidth];
  {
    float gamma[kWidth];
    load_floats(scale.means + walk.channel, mean);
    load_floats(scale.inverse_deviations + walk.channel, factor);
    load_floats(scale.gamma + walk.channel, gamma);
    load_floats(scale.beta + walk.channel, beta);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) factor[i] *= gamma[i];
  }
  for_each_row<kAdds ? kRowsOfTwoArrays : kRowsOfOneArray>(
      walk, layout.rows,
      [&](std::int64_t row) {
        const std::int64_t offset = row * layout.channels + walk.channel;
        Row loaded;
        loaded.input = load_stored<T, kWidth>(input + offset);
        if constexpr (kAdds) loaded.residual = load_stored<T, kWidth>(residual + offset);
        return loaded;
      },
      [&](std::int64_t row, const Row& loaded) {
        Values<T, kWidth> values = values_of<T, kWidth>(loaded.input);
        Values<T, kWidth> added{};
        if constexpr (kAdds) added = values_of<T, kWidth>(loaded.residual);
        unsigned bits = 0;
#pragma unroll
        for (int i = 0; i < kWidth; ++i) {
          const float y = (values.elements[i] - mean[i]) * factor[i] + beta[i] + added.elements[i];
          if (y > 0) bits |= 1U << i;
          values.elements[i] = relu && y <= 0 ? 0.0f : y;
        }
        store<T, kWidth>(output + row * layout.channels + walk.channel, values);
        if (mask != nullptr) mask[place(row)] = static_cast<std::uint8_t>(bits);
      });
}

// A row of the backward pass: the bits select where the gradient passes the ReLU.
template <typename T, int kWidth>
struct GradientRow {
  Stored<T, kWidth> input;
  Stored<T, kWidth> gradient;
  std::uint8_t bits;

  __device__ Values<T, kWidth> masked_gradient() const {
    Values<T, kWidth> g = values_of<T, kWidth>(gradient);
#pragma unroll
    for (int i = 0; i < kWidth; ++i)
      if ((bits >> i & 1U) == 0) g.elements[i] = 0;
    return g;
  }
};

template <typename T, int kWidth>
__device__ GradientRow<T, kWidth> load_gradient_row(const T* input, const T* gradient,
                                                    const std::uint8_t* mask, std::int64_t offset,
                                                    std::int64_t mask_at) {
  return {load_stored<T, kWidth>(input + offset), load_stored<T, kWidth>(gradient + offset),
          mask == nullptr ? std::uint8_t{0xff} : mask[mask_at]};
}

// Sums of g and of g * (x - mean); the second is multiplied by 1 / deviation when it is complete.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kRowThreads, kRowBlocksPerMultiprocessor)
    gradient_sums_of_rows(const T* input, const std::uint8_t* mask, const T* gradient,
                          const float* means, ChannelLayout layout, Pair* partials) {
  const Walk<kWidth> walk(layout);
  Pair sums[kWidth];
  if (walk.channel < layout.channels) {
    const MaskPlace<kWidth> place(walk, layout);
    float mean[kWidth];
    load_floats(means + walk.channel, mean);
    for_each_row<kRowsOfTwoArrays>(
        walk, layout.rows,
        [&](std::int64_t number) {
          const std::int64_t row = layout.rows - 1 - number;
          return load_gradient_row<T, kWidth>(input, gradient, mask,
                                              row * layout.channels + walk.channel, place(row));
        },
        [&](std::int64_t, const GradientRow<T, kWidth>& row) {
          const Values<T, kWidth> x = values_of<T, kWidth>(row.input);
          const Values<T, kWidth> g = row.masked_gradient();
#pragma unroll
          for (int i = 0; i < kWidth; ++i) {
            sums[i].first += g.elements[i];
            sums[i].second += g.elements[i] * (x.elements[i] - mean[i]);
          }
        });
  }
  add_lanes<kWidth>(sums, layout, partials);
}

__global__ void __launch_bounds__(kSumThreads)
    add_gradient_sums(const Pair* partials, ChannelLayout layout, const float* inverse_deviations,
                      float* sums, float* beta_gradient, float* gamma_gradient) {
  const std::int64_t channel = summed_channel();
  const WidePair sum = sum_partials(partials, layout);
  if (!has_sum(layout.channels)) return;
  const auto first = static_cast<float>(sum.first);
  const auto second =
      static_cast<float>(sum.second * static_cast<double>(inverse_deviations[channel]));
  sums[channel] = beta_gradient[channel] = first;
  sums[layout.channels + channel] = gamma_gradient[channel] = second;
}

// model::input_gradient() as a * g + b * (x - mean) + c, with one division per channel.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kRowThreads, kRowBlocksPerMultiprocessor)
    input_gradient_of_rows(const T* input, const std::uint8_t* mask, const T* gradient,
                           ChannelScale scale, const float* sums, const float* count,
                           ChannelLayout layout, T* input_gradient, T* residual_gradient) {
  const Walk<kWidth> walk(layout);
  if (walk.channel >= layout.channels) return;
  const MaskPlace<kWidth> place(walk, layout);
  float mean[kWidth], a[kWidth], b[kWidth], c[kWidth];
  {
    float inverse[kWidth], gamma[kWidth];
    load_floats(scale.means + walk.channel, mean);
    load_floats(scale.inverse_deviations + walk.channel, inverse);
    load_floats(scale.gamma + walk.channel, gamma);
    load_floats(sums + walk.channel, c);
    load_floats(sums + layout.channels + walk.channel, b);
    const float share = 1 / *count;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      a[i] = gamma[i] * inverse[i];
      b[i] *= -a[i] * inverse[i] * share;
      c[i] *= -a[i] * share;
    }
  }
  for_each_row<kRowsOfTwoArrays>(
      walk, layout.rows,
      [&](std::int64_t row) {
        return load_gradient_row<T, kWidth>(input, gradient, mask,
                                            row * layout.channels + walk.channel, place(row));
      },
      [&](std::int64_t row, const GradientRow<T, kWidth>& loaded) {
        const std::int64_t offset = row * layout.channels + walk.channel;
        const Values<T, kWidth> g = loaded.masked_gradient();
        if (residual_gradient != nullptr) store<T, kWidth>(residual_gradient + offset, g);
        if (input_gradient == nullptr) return;
        Values<T, kWidth> x = values_of<T, kWidth>(loaded.input);
#pragma unroll
        for (int i = 0; i < kWidth; ++i)
          x.elements[i] = a[i] * g.elements[i] + (b[i] * (x.elements[i] - mean[i]) + c[i]);
        store<T, kWidth>(input_gradient + offset, x);
      });
}

}  // namespace

std::size_t mask_bytes(const ChannelLayout& layout) {
  return static_cast<std::size_t>(layout.rows * (layout.channels / layout.width));
}

void batch_statistics(const TensorView& input, const ChannelLayout& layout, void* partials,
                      const StatisticsArguments& arguments, std::size_t member,
                      cudaStream_t stream) {
  auto* const pairs = static_cast<Pair*>(partials);
  with_width(input.type(), layout.channels,
             [&]<typename T, int kWidth>(T, std::integral_constant<int, kWidth>) {
               launch(statistics_of_rows<T, kWidth>, grid_of(layout), kRowThreads, stream,
                      data<T>(input), layout, pairs);
               launch(add_statistics<T>, sum_blocks(layout.channels), kSumThreads, stream,
                      data<T>(input), pairs, layout, arguments, member);
             });
}

void moments_of_sums(const ChannelSums& sums, std::int64_t rows,
                     const StatisticsArguments& arguments, std::size_t member,
                     cudaStream_t stream) {
  launch(divide_sums, blocks_for(arguments.layout.channels), kThreads, stream, sums, rows,
         arguments, member);
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
               bool relu, const ChannelLayout& layout, const TensorView& output, std::uint8_t* mask,
               cudaStream_t stream) {
  with_width(input.type(), layout.channels,
             [&]<typename T, int kWidth>(T, std::integral_constant<int, kWidth>) {
               launch(residual.empty() ? normalize_rows<T, kWidth, false>
                                       : normalize_rows<T, kWidth, true>,
                      grid_of(layout), kRowThreads, stream, data<T>(input), data<T>(residual),
                      scale, relu, layout, data<T>(output), mask);
             });
}

void gradient_sums(const TensorView& input, const std::uint8_t* mask,
                   const TensorView& output_gradient, const ChannelScale& scale,
                   const ChannelLayout& layout, void* partials, const GradientSums& results,
                   cudaStream_t stream) {
  auto* const pairs = static_cast<Pair*>(partials);
  with_width(input.type(), layout.channels,
             [&]<typename T, int kWidth>(T, std::integral_constant<int, kWidth>) {
               launch(gradient_sums_of_rows<T, kWidth>, grid_of(layout), kRowThreads, stream,
                      data<T>(input), mask, data<T>(output_gradient), scale.means, layout, pairs);
             });
  launch(add_gradient_sums, sum_blocks(layout.channels), kSumThreads, stream, pairs, layout,
         scale.inverse_deviations, results.sums, results.beta, results.gamma);
}

void input_gradient(const TensorView& input, const std::uint8_t* mask,
                    const TensorView& output_gradient, const ChannelScale& scale, const float* sums,
                    const float* count, const ChannelLayout& layout,
                    const TensorView& input_gradient, const TensorView& residual_gradient,
                    cudaStream_t stream) {
  with_width(input.type(), layout.channels,
             [&]<typename T, int kWidth>(T, std::integral_constant<int, kWidth>) {
               launch(input_gradient_of_rows<T, kWidth>, grid_of(layout), kRowThreads, stream,
                      data<T>(input), mask, data<T>(output_gradient), scale, sums, count, layout,
                      data<T>(input_gradient), data<T>(residual_gradient));
             });
}

}  // namespace lockstep::inline v0::model::cuda
