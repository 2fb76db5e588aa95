#include "lockstep/model/layers/elementwise/kernels.h"

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

}  // namespace

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
