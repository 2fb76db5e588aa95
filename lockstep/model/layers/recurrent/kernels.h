// Kernels of recurrent layers. All functions return when the work is enqueued on `stream`. Arrays
// are those of RecurrentSpec, steps outermost, of the type `precision` unless they are floats.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "lockstep/model/layers/recurrent/recurrent.h"
#include "lockstep/model/tensor.h"

namespace lockstep::model::cuda {

/// The arrays of one step, [rows, width] or [rows, units]; see RecurrentLayout.
struct RecurrentStep {
  void* gates = nullptr;
  const void* hidden_before = nullptr;
  void* hidden = nullptr;
  const float* state_before = nullptr;  ///< of an LSTM
  float* state = nullptr;               ///< of an LSTM
  void* candidates = nullptr;           ///< of a GRU in training
};

/// The outputs of one step. `products` are the recurrent products [rows, width], to which
/// `recurrent_bias` [width] is added unless it is null. `output`, unless it is null, is where those
/// of sample 0 also go; samples have a distance of RecurrentSpec::output_elements().
void recurrent_forward(const RecurrentSpec& spec, Precision precision, const RecurrentStep& step,
                       const float* products, const float* recurrent_bias, void* output,
                       cudaStream_t stream);

/// Replaces the values of the gates by the gradients of what they are functions of. The gradient of
/// the output is the sum of `products` [rows, units], that of the recurrent products of the next
/// step, and of `output_gradient`, as `output` above. `carry` [rows, units] is read and written:
/// what else of a gradient goes to the step before. `recurrent_gates` [rows, width] receives the
/// gradients of the recurrent products of a GRU, for other cells `gates` are these.
void recurrent_backward(const RecurrentSpec& spec, Precision precision, const RecurrentStep& step,
                        const float* products, const void* output_gradient, float* carry,
                        void* recurrent_gates, cudaStream_t stream);

/// ordered [T, rows, F] = input [batch, T, F] in the order of a direction's steps; rows after the
/// batch are 0.
void order_inputs(const RecurrentSpec& spec, int direction, const TensorView& input, void* ordered,
                  cudaStream_t stream);
/// The inverse; direction 1 adds to what is there.
void restore_inputs(const RecurrentSpec& spec, int direction, const void* ordered,
                    const TensorView& input, cudaStream_t stream);

}  // namespace lockstep::model::cuda
