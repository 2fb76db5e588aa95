// Kernels of softmax and of the losses over [samples, width]. All return when the work is on `stream`.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "lockstep/model/metric.h"
#include "lockstep/model/tensor.h"

namespace lockstep::model::cuda {

/// exp(x) / sum of exp over each row.
void softmax_forward(const TensorView& input, std::int64_t width, const TensorView& output, cudaStream_t stream);
void softmax_backward(const TensorView& output, const TensorView& output_gradient, std::int64_t width,
                      const TensorView& input_gradient, cudaStream_t stream);

/// What one sample adds to the sums; a scratch array of them is as long as the batch.
struct SampleLoss {
  double loss = 0;
  std::int64_t rank = 0;  ///< outputs that come before the label's
};

/// Everything in memory of the GPU.
struct LossArguments {
  TensorView outputs;                            ///< [samples, width]
  TensorView gradient;                           ///< the same, or empty
  const std::int32_t* labels = nullptr;          ///< [samples], in range
  const std::int32_t* partner_labels = nullptr;  ///< [samples], in range; null where samples are not mixed
  const float* weights = nullptr;                ///< [samples], of `labels`, where they are
  const float* targets = nullptr;                ///< [samples, width]
  const float* gradient_factor = nullptr;        ///< loss scale / samples of the global batch
  SampleLoss* of_samples = nullptr;              ///< [samples], scratch
  MetricSums* sums = nullptr;                    ///< added to
  std::int64_t samples = 0;
  std::int64_t width = 0;
};
/// As model::compute_loss; the loss of a sample is computed in float32, the sums in double, in the order of the
/// samples.
void cross_entropy(const LossArguments& arguments, float label_smoothing, cudaStream_t stream);
void mean_squared_error(const LossArguments& arguments, cudaStream_t stream);

/// SummableMetrics(*sums) at `summable`.
void write_summable(const MetricSums* sums, float* summable, cudaStream_t stream);

}  // namespace lockstep::model::cuda
