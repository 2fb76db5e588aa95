// Kernels of softmax and of the losses over [samples, width]. All functions return when the work is
// enqueued on `stream`.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "lockstep/model/loss/loss.h"
#include "lockstep/model/tensor/tensor.h"

namespace lockstep::inline v0::model::cuda {

/// exp(x) / sum of exp(x) over each row.
void softmax_forward(const TensorView& input, std::int64_t width, const TensorView& output,
                     cudaStream_t stream);
void softmax_backward(const TensorView& output, const TensorView& output_gradient,
                      std::int64_t width, const TensorView& input_gradient, cudaStream_t stream);

/// One position's contribution to the sums, without its weight; stored in a scratch array of the
/// batch size.
struct SampleLoss {
  double loss = 0;
  std::int64_t rank = 0;  ///< number of classes ranked above the true one
};

/// All pointers are to GPU memory. A row is a sample, or a position of a sample with several.
struct LossArguments {
  TensorView outputs;   ///< [rows, width]
  TensorView gradient;  ///< [rows, width], or empty; with classes also the memory of the outputs
  const std::int32_t* labels = nullptr;          ///< [rows], in range; null: `targets`
  const std::int32_t* partner_labels = nullptr;  ///< [rows], in range; null without mixup
  const float* weights = nullptr;                ///< [rows], weights of `labels`, with mixup
  const float* targets = nullptr;                ///< [rows, width]
  const float* sample_weights = nullptr;         ///< [rows / rows_per_weight]; null: all are 1
  std::int64_t rows_per_weight = 1;
  std::int64_t first_row = 0;              ///< index of the first row in `sample_weights`
  const float* gradient_factor = nullptr;  ///< loss scale / samples of the global batch
  float gradient_weight = 1;               ///< LossTerm::weight / positions of a sample
  float loss_weight = 1;                   ///< LossTerm::weight, in positions of the first term
  bool is_first_term = true;         ///< whether its samples and accuracy are added to the sums
  SampleLoss* row_losses = nullptr;  ///< [rows], scratch
  MetricSums* sums = nullptr;        ///< accumulated into
  std::int64_t samples = 0;          ///< samples added to the sums
  std::int64_t rows = 0;
  std::int64_t width = 0;
  std::int64_t row_stride = 0;  ///< elements per output row; above `width` with labels only
};
/// As model::compute_loss. The loss of a row is computed in float32; the sums are accumulated in
/// double, in the order of rows. Throws Error (input) for a loss that runs on the CPU only.
void compute_loss(const Loss& loss, const LossArguments& arguments, cudaStream_t stream);

/// Writes SummableMetrics(*sums) to `summable`.
void write_summable(const MetricSums* sums, float* summable, cudaStream_t stream);

}  // namespace lockstep::inline v0::model::cuda
