#include "lockstep/model/cuda/elementwise.h"

#include <Random123/philox.h>

#include <algorithm>

#include "lockstep/device/cuda/launch.h"
#include "lockstep/model/cuda/channels.h"
#include "lockstep/model/cuda/elements.h"
#include "lockstep/model/cuda/map.h"

namespace lockstep::inline v0::model::cuda {
namespace {

using device::cuda::launch;

struct Relu {
  __device__ float operator()(float x) const { return x <= 0 ? 0.0f : x; }
};
struct ReluGradient {
  __device__ float operator()(float output, float gradient) const {
    return output > 0 ? gradient : 0.0f;
  }
};
struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct SumRelu {
  __device__ float operator()(float a, float b) const { return Relu()(a + b); }
};

struct Product {
  __device__ float operator()(float a, float b) const { return a * b; }
};

template <typename From, typename To>
__device__ void convert_range(const From* from, To* to, std::size_t count) {
  constexpr std::size_t kElements = 4;  // 8 or 16 bytes per array
  struct alignas(kElements * sizeof(From)) Source {
    From elements[kElements];
  };
  struct alignas(kElements * sizeof(To)) Target {
    To elements[kElements];
  };
  const std::size_t packs = count / kElements;
  for (std::size_t pack = first_index(); pack < packs; pack += index_stride()) {
    const Source source = *reinterpret_cast<const Source*>(from + pack * kElements);
    Target target;
#pragma unroll
    for (std::size_t i = 0; i < kElements; ++i)
      target.elements[i] = narrow<To>(widen(source.elements[i]));
    *reinterpret_cast<Target*>(to + pack * kElements) = target;
  }
  for (std::size_t i = packs * kElements + first_index(); i < count; i += index_stride())
    to[i] = narrow<To>(widen(from[i]));
}

template <typename From, typename To>
__global__ void convert_elements(const From* from, To* to, std::size_t count) {
  convert_range(from, to, count);
}

// A row of blocks for each array.
constexpr std::size_t kMaxWidenings = 32;
template <typename From>
struct Widenings {
  const From* from[kMaxWidenings];
  float* to[kMaxWidenings];
  std::size_t counts[kMaxWidenings];
};
template <typename From>
__global__ void widen_arrays(Widenings<From> arrays) {
  convert_range(arrays.from[blockIdx.y], arrays.to[blockIdx.y], arrays.counts[blockIdx.y]);
}

constexpr std::size_t kMaxWords = 256;  // 1 KiB; a kernel has at most 4 KiB of arguments

struct Words {
  std::uint32_t words[kMaxWords];
};

__global__ void write_some_words(Words some, std::uint32_t* to, std::size_t count) {
  for (std::size_t i = first_index(); i < count; i += index_stride()) to[i] = some.words[i];
}

// Each value is a hash of its index: the multiplications of MurmurHash3's finalizer.
template <typename T>
__global__ void fill_elements(T* to, std::size_t count) {
  for (std::size_t i = first_index(); i < count; i += index_stride()) {
    auto bits = static_cast<std::uint32_t>(i) + 0x9e3779b9U;
    bits = (bits ^ bits >> 16) * 0x85ebca6bU;
    bits = (bits ^ bits >> 13) * 0xc2b2ae35U;
    bits ^= bits >> 16;
    to[i] = narrow<T>(static_cast<float>(bits >> 8) * 0x1.0p-23f - 1.0f);
  }
}

template <typename From, typename To>
__global__ void convert_channel_elements(const From* from, std::size_t from_channels, To* to,
                                         std::size_t to_channels, std::size_t count) {
  for (std::size_t i = first_index(); i < count; i += index_stride()) {
    const std::size_t row = i / to_channels;
    const std::size_t channel = i % to_channels;
    to[i] = narrow<To>(channel < from_channels ? widen(from[row * from_channels + channel]) : 0.0f);
  }
}

// The features of the 256 pixel values: one division per value and channel.
constexpr unsigned kPixelValues = 256;
using PixelFeatures = float[ChannelNormalization::kMaxChannels][kPixelValues];

// Must be called by all threads.
__device__ inline void compute_features(const ChannelNormalization& normalization,
                                        PixelFeatures& features) {
  const auto channels = static_cast<unsigned>(normalization.channels);
  for (unsigned i = threadIdx.x; i < channels * kPixelValues; i += blockDim.x) {
    const unsigned channel = i / kPixelValues;
    features[channel][i % kPixelValues] =
        normalized(static_cast<float>(i % kPixelValues) / 255.0f, normalization.mean[channel],
                   normalization.deviation[channel]);
  }
  __syncthreads();
}

template <typename To, int kPadded>
__global__ void convert_padded_pixels(const std::uint8_t* from, std::size_t channels, To* to,
                                      std::size_t pixels, ChannelNormalization normalization) {
  struct alignas(kPadded * sizeof(To)) Target {
    To elements[kPadded];
  };
  __shared__ PixelFeatures features;
  compute_features(normalization, features);
  for (std::size_t pixel = first_index(); pixel < pixels; pixel += index_stride()) {
    Target target;
#pragma unroll
    for (std::size_t i = 0; i < kPadded; ++i) {
      float feature = 0;
      if (i < channels)
        feature = features[normalization.channels == 1 ? 0 : i][from[pixel * channels + i]];
      target.elements[i] = narrow<To>(feature);
    }
    *reinterpret_cast<Target*>(to + pixel * kPadded) = target;
  }
}

template <typename To>
__global__ void convert_pixel_elements(const std::uint8_t* from, To* to, std::size_t count,
                                       ChannelNormalization normalization) {
  constexpr std::size_t kElements = 4;
  struct alignas(kElements) Source {
    std::uint8_t elements[kElements];
  };
  struct alignas(kElements * sizeof(To)) Target {
    To elements[kElements];
  };
  __shared__ PixelFeatures features;
  compute_features(normalization, features);
  const auto channels = static_cast<unsigned>(normalization.channels);
  const std::size_t packs = count / kElements;
  auto channel = static_cast<unsigned>(first_index() * kElements % channels);
  const auto step = static_cast<unsigned>(index_stride() * kElements % channels);
  for (std::size_t pack = first_index(); pack < packs; pack += index_stride()) {
    const Source source = *reinterpret_cast<const Source*>(from + pack * kElements);
    Target target;
    unsigned element_channel = channel;
#pragma unroll
    for (std::size_t i = 0; i < kElements; ++i) {
      target.elements[i] = narrow<To>(features[element_channel][source.elements[i]]);
      element_channel = element_channel + 1 == channels ? 0 : element_channel + 1;
    }
    *reinterpret_cast<Target*>(to + pack * kElements) = target;
    channel += step;
    if (channel >= channels) channel -= channels;
  }
  for (std::size_t i = packs * kElements + first_index(); i < count; i += index_stride())
    to[i] = narrow<To>(features[i % channels][from[i]]);
}

// Four features of a sample use one block of random words, as on the CPU.
template <typename T>
__global__ void drop(const T* from, T* to, std::size_t samples, std::size_t features,
                     const PassKey* drawn_from, float rate) {
  constexpr std::size_t kWords = 4;
  const PassKey drawn = *drawn_from;
  const r123::Philox4x32::key_type key = {
      {static_cast<std::uint32_t>(drawn.key), static_cast<std::uint32_t>(drawn.key >> 32)}};
  const float scale = 1 / (1 - rate);
  const std::size_t blocks = (features + kWords - 1) / kWords;
  for (std::size_t index = first_index(); index < samples * blocks; index += index_stride()) {
    const std::size_t sample = index / blocks;
    const std::size_t block = index % blocks;
    const std::uint64_t number = drawn.first_sample + sample;
    const r123::Philox4x32::ctr_type counter = {
        {static_cast<std::uint32_t>(block),
         static_cast<std::uint32_t>(static_cast<std::uint64_t>(block) >> 32),
         static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32)}};
    const r123::Philox4x32::ctr_type words = r123::Philox4x32()(counter, key);
    for (std::size_t k = 0; k < kWords && block * kWords + k < features; ++k) {
      const std::size_t i = sample * features + block * kWords + k;
      const bool passes = static_cast<float>(words[k] >> 8) * 0x1.0p-24f >= rate;
      to[i] = narrow<T>(passes ? widen(from[i]) * scale : 0.0f);
    }
  }
}

}  // namespace

void relu_forward(const TensorView& input, const TensorView& output, cudaStream_t stream) {
  map(input, output, Relu(), stream);
}

void relu_backward(const TensorView& output, const TensorView& output_gradient,
                   const TensorView& input_gradient, cudaStream_t stream) {
  map(output, output_gradient, input_gradient, ReluGradient(), stream);
}

void add(const TensorView& a, const TensorView& b, bool relu, const TensorView& output,
         cudaStream_t stream) {
  if (relu)
    map(a, b, output, SumRelu(), stream);
  else
    map(a, b, output, Sum(), stream);
}

void multiply(const TensorView& a, const TensorView& b, const TensorView& output,
              cudaStream_t stream) {
  map(a, b, output, Product(), stream);
}

void convert(const TensorView& from, const TensorView& to, cudaStream_t stream) {
  if (from.empty()) return;
  with_type(from.type(), [&]<typename From>(From) {
    with_type(to.type(), [&]<typename To>(To) {
      launch(convert_elements<From, To>, blocks_for(from.size() / 4), kThreads, stream,
             data<From>(from), data<To>(to), from.size());
    });
  });
}

void widen_all(std::span<const Widening> arrays, Precision precision, cudaStream_t stream) {
  with_type(precision, [&]<typename From>(From) {
    for (; !arrays.empty(); arrays = arrays.subspan(std::min(arrays.size(), kMaxWidenings))) {
      Widenings<From> some = {};
      const std::size_t count = std::min(arrays.size(), kMaxWidenings);
      std::size_t largest = 0;
      for (std::size_t i = 0; i < count; ++i) {
        some.from[i] = data<From>(arrays[i].from);
        some.to[i] = arrays[i].to.data();
        some.counts[i] = arrays[i].to.size();
        largest = std::max(largest, arrays[i].to.size());
      }
      launch(widen_arrays<From>, dim3(blocks_for(largest / 4), static_cast<unsigned>(count)),
             kThreads, stream, some);
    }
  });
}

void write_words(std::span<const std::uint32_t> words, std::uint32_t* to, cudaStream_t stream) {
  for (std::size_t begin = 0; begin < words.size(); begin += kMaxWords) {
    Words some = {};
    const std::size_t count = std::min(words.size() - begin, kMaxWords);
    std::ranges::copy(words.subspan(begin, count), some.words);
    launch(write_some_words, 1, kThreads, stream, some, to + begin, count);
  }
}

void fill_randomly(const TensorView& to, cudaStream_t stream) {
  if (to.empty()) return;
  with_type(to.type(), [&]<typename T>(T) {
    launch(fill_elements<T>, blocks_for(to.size()), kThreads, stream, data<T>(to), to.size());
  });
}

namespace {

ChannelNormalization effective(const ChannelNormalization& normalization) {
  if (normalization.channels > 0) return normalization;
  return {.channels = 1};  // (x - 0) / 1
}

}  // namespace

void convert_pixels(const std::uint8_t* pixels, const ChannelNormalization& normalization,
                    const TensorView& to, cudaStream_t stream) {
  if (to.empty()) return;
  with_type(to.type(), [&]<typename To>(To) {
    launch(convert_pixel_elements<To>, blocks_for(to.size() / 4), kThreads, stream, pixels,
           data<To>(to), to.size(), effective(normalization));
  });
}

void convert_pixels_padded(const std::uint8_t* pixels, std::int64_t channels,
                           const ChannelNormalization& normalization, const TensorView& to,
                           cudaStream_t stream) {
  const auto convert = [&]<typename To, int kPadded>(To, std::integral_constant<int, kPadded>) {
    const std::size_t count = to.size() / kPadded;
    launch(convert_padded_pixels<To, kPadded>, blocks_for(count), kThreads, stream, pixels,
           static_cast<std::size_t>(channels), data<To>(to), count, effective(normalization));
  };
  if (to.type() == Precision::float16)
    convert(__half{}, std::integral_constant<int, min_channels(Precision::float16)>());
  else
    convert(__nv_bfloat16{}, std::integral_constant<int, min_channels(Precision::bfloat16)>());
}

void convert_channels(const TensorView& from, std::int64_t from_channels, const TensorView& to,
                      std::int64_t to_channels, cudaStream_t stream) {
  with_type(from.type(), [&]<typename From>(From) {
    with_type(to.type(), [&]<typename To>(To) {
      launch(convert_channel_elements<From, To>, blocks_for(to.size()), kThreads, stream,
             data<From>(from), static_cast<std::size_t>(from_channels), data<To>(to),
             static_cast<std::size_t>(to_channels), to.size());
    });
  });
}

void dropout(const TensorView& input, const PassKey* key, std::int64_t features, float rate,
             const TensorView& output, cudaStream_t stream) {
  if (input.empty()) return;
  const auto width = static_cast<std::size_t>(features);
  const std::size_t samples = input.size() / width;
  with_type(input.type(), [&]<typename T>(T) {
    launch(drop<T>, blocks_for(samples * ((width + 3) / 4)), kThreads, stream, data<T>(input),
           data<T>(output), samples, width, key, rate);
  });
}

}  // namespace lockstep::inline v0::model::cuda
