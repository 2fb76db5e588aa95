#include "lockstep/model/layers/elementwise/kernels.h"

#include <algorithm>

#include "lockstep/device/cuda/launch.h"
#include "lockstep/model/cuda/elements.h"
#include "lockstep/model/cuda/map.h"
#include "lockstep/model/layers/layers.h"

namespace lockstep::inline v0::model::cuda {
namespace {

template <typename F>
struct PointwiseForward {
  F f;
  __device__ float operator()(float x) const { return f.forward(x); }
};
template <typename F>
struct PointwiseGradient {
  F f;
  __device__ float operator()(float value, float gradient) const {
    return f.gradient(value, gradient);
  }
};

template <typename T>
__global__ void multiply_elements(const T* larger, const T* smaller, Broadcast broadcast,
                                  T* product) {
  const auto inner = static_cast<std::size_t>(broadcast.inner);
  const auto period = static_cast<std::size_t>(broadcast.repeats) * inner;
  const std::size_t count = static_cast<std::size_t>(broadcast.outer) * period;
  for (std::size_t i = first_index(); i < count; i += index_stride())
    product[i] = narrow<T>(widen(larger[i]) * widen(smaller[i / period * inner + i % inner]));
}

// A block sums one element, or several neighboring ones with some threads each, so that
// neighboring threads read neighboring elements.
template <typename T>
__global__ void sum_repeated(const T* a, const T* b, Broadcast broadcast, int columns, T* sums) {
  __shared__ float found[kThreads];
  const auto thread = static_cast<int>(threadIdx.x);
  const int lanes = static_cast<int>(kThreads) / columns;
  const std::int64_t groups = (broadcast.inner + columns - 1) / columns;
  for (std::int64_t group = blockIdx.x; group < broadcast.outer * groups; group += gridDim.x) {
    const std::int64_t outer = group / groups;
    const std::int64_t column = group % groups * columns + thread % columns;
    float sum = 0;
    if (column < broadcast.inner)
      for (std::int64_t r = thread / columns; r < broadcast.repeats; r += lanes) {
        const std::int64_t i = (outer * broadcast.repeats + r) * broadcast.inner + column;
        sum += widen(a[i]) * widen(b[i]);
      }
    found[thread] = sum;
    __syncthreads();
    for (int half = lanes / 2; half > 0; half /= 2) {
      if (thread < half * columns) found[thread] += found[thread + half * columns];
      __syncthreads();
    }
    if (thread < columns && column < broadcast.inner)
      sums[outer * broadcast.inner + column] = narrow<T>(found[thread]);
    __syncthreads();
  }
}

}  // namespace

void multiply_repeated(const TensorView& larger, const TensorView& smaller,
                       const Broadcast& broadcast, const TensorView& product, cudaStream_t stream) {
  if (larger.empty()) return;
  with_type(larger.type(), [&]<typename T>(T) {
    device::cuda::launch(multiply_elements<T>, blocks_for(larger.size()), kThreads, stream,
                         data<T>(larger), data<T>(smaller), broadcast, data<T>(product));
  });
}

void sum_products(const TensorView& a, const TensorView& b, const Broadcast& broadcast,
                  const TensorView& sums, cudaStream_t stream) {
  if (a.empty()) return;
  int columns = 1;
  while (columns < 32 && columns < broadcast.inner) columns *= 2;
  const std::int64_t groups = broadcast.outer * ((broadcast.inner + columns - 1) / columns);
  constexpr std::int64_t kMaxBlocks = 4096;
  with_type(a.type(), [&]<typename T>(T) {
    device::cuda::launch(sum_repeated<T>, static_cast<unsigned>(std::min(groups, kMaxBlocks)),
                         kThreads, stream, data<T>(a), data<T>(b), broadcast, columns,
                         data<T>(sums));
  });
}

void pointwise_forward(const PointwiseLayer& layer, const TensorView& input,
                       const TensorView& output, cudaStream_t stream) {
  visit_function(layer, [&]<typename F>(const F& function) {
    map(input, output, PointwiseForward<F>{function}, stream);
  });
}

void pointwise_backward(const PointwiseLayer& layer, const TensorView& values,
                        const TensorView& output_gradient, const TensorView& input_gradient,
                        cudaStream_t stream) {
  visit_function(layer, [&]<typename F>(const F& function) {
    map(values, output_gradient, input_gradient, PointwiseGradient<F>{function}, stream);
  });
}

}  // namespace lockstep::inline v0::model::cuda
