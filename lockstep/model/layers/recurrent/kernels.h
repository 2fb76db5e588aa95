// Kernels of recurrent layers. All functions return when the work is enqueued on `stream`. Arrays
// are those of RecurrentSpec, steps outermost, of the type `precision` unless they are floats.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "lockstep/model/layers/recurrent/recurrent.h"
#include "lockstep/model/tensor/tensor.h"

namespace lockstep::inline v0::model::cuda {

/// The arrays of one step, [rows, width] or [rows, units]; see RecurrentLayout.
struct RecurrentStep {
  void* gates = nullptr;
  const void* hidden_before = nullptr;
  void* hidden = nullptr;
  const float* state_before = nullptr;        ///< LSTM only
  float* state = nullptr;                     ///< LSTM only
  void* candidates = nullptr;                 ///< GRU in training only
  const RecurrentMark* marks = nullptr;       ///< [rows], with segments
  const RecurrentMark* next_marks = nullptr;  ///< marks of the next step, if any
  const void* initial_hidden = nullptr;       ///< hidden_before of step 0; with segments
  const float* initial_state = nullptr;       ///< state_before of step 0; LSTM with segments
};

/// The float32 gradients that a step passes to the previous one. All but `products` are also
/// written.
struct RecurrentGradients {
  const float* products = nullptr;  ///< [rows, units]: gradient of the recurrent products
  float* carry = nullptr;           ///< [rows, units]: the remaining gradient for the previous step
  float* kept = nullptr;            ///< [rows, units]: what padding passes on; with segments
  float* initial = nullptr;         ///< [states, rows, units]: sum for the initial state
};

/// marks [T, rows] of the segments [batch, T].
void mark_rows(const RecurrentSpec& spec, int direction, std::span<const std::int32_t> segments,
               RecurrentMark* marks, cudaStream_t stream);

/// The states [rows, units] before step 0; `state` is that of an LSTM. `input` is the initial state
/// of all samples; without one the states are 0.
void read_initial_state(const RecurrentSpec& spec, Precision precision, int direction,
                        const TensorView& input, void* hidden, float* state, cudaStream_t stream);

/// The outputs of one step. `products` are the recurrent products [rows, width], to which
/// `recurrent_bias` [width] is added unless it is null. `output`, unless it is null, also receives
/// those of sample 0; samples have a stride of RecurrentSpec::output_elements().
void recurrent_forward(const RecurrentSpec& spec, Precision precision, const RecurrentStep& step,
                       const float* products, const float* recurrent_bias, void* output,
                       cudaStream_t stream);

/// Replaces the values of the gates by the gradients of their preactivations. The gradient of the
/// output is the sum of the gradients from the next step and of `output_gradient`, laid out as
/// `output` above. `recurrent_gates` [rows, width] receives the gradients of the recurrent products
/// of a GRU; for other cells these are `gates`.
void recurrent_backward(const RecurrentSpec& spec, Precision precision, const RecurrentStep& step,
                        const RecurrentGradients& gradients, const void* output_gradient,
                        void* recurrent_gates, cudaStream_t stream);

/// The gradient of the initial state of a direction, part of `input_gradient`, after step 0.
void write_initial_gradient(const RecurrentSpec& spec, int direction,
                            const RecurrentGradients& gradients, const TensorView& input_gradient,
                            cudaStream_t stream);

/// ordered [T, rows, F] = input [batch, T, F] in the order of a direction's steps; rows after the
/// batch are 0.
void order_inputs(const RecurrentSpec& spec, int direction, const TensorView& input, void* ordered,
                  cudaStream_t stream);
/// The inverse; direction 1 adds to the existing values.
void restore_inputs(const RecurrentSpec& spec, int direction, const void* ordered,
                    const TensorView& input, cudaStream_t stream);

}  // namespace lockstep::inline v0::model::cuda
