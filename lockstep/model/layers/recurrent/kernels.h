// Kernels of recurrent layers. All functions return when the work is enqueued on `stream`. Arrays
// are those of RecurrentSpec, steps outermost, of the type `precision` unless they are floats.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "lockstep/model/layers/recurrent/recurrent.h"
#include "lockstep/model/tensor.h"

namespace lockstep::model::cuda {

/// The arrays of one step, [rows, width] or [rows, units]; see RecurrentLayout.
struct RecurrentStep {
  void* gates = nullptr;
  const void* hidden_before = nullptr;
  void* hidden = nullptr;
  const float* state_before = nullptr;        ///< of an LSTM
  float* state = nullptr;                     ///< of an LSTM
  void* candidates = nullptr;                 ///< of a GRU in training
  const RecurrentMark* marks = nullptr;       ///< [rows], with segments
  const RecurrentMark* next_marks = nullptr;  ///< of the next step, if there is one
  const void* initial_hidden = nullptr;       ///< hidden_before of step 0; with segments
  const float* initial_state = nullptr;       ///< state_before of step 0, of an LSTM; with segments
};

/// The gradients that go from one step to the step before, floats. All but `products` are written,
/// too.
struct RecurrentGradients {
  const float* products = nullptr;  ///< [rows, units]: that of the recurrent products
  float* carry = nullptr;           ///< [rows, units]: what else goes to the step before
  float* kept = nullptr;            ///< [rows, units]: what padding leaves to it; with segments
  float* initial = nullptr;  ///< [states, rows, units]: the sum of those of the initial state
};

/// marks [T, rows] of the segments [batch, T].
void mark_rows(const RecurrentSpec& spec, int direction, std::span<const std::int32_t> segments,
               RecurrentMark* marks, cudaStream_t stream);

/// The states [rows, units] before step 0; `state` is that of an LSTM. `input` is the initial state
/// of all samples; without one the states are 0.
void read_initial_state(const RecurrentSpec& spec, Precision precision, int direction,
                        const TensorView& input, void* hidden, float* state, cudaStream_t stream);

/// The outputs of one step. `products` are the recurrent products [rows, width], to which
/// `recurrent_bias` [width] is added unless it is null. `output`, unless it is null, is where those
/// of sample 0 also go; samples have a distance of RecurrentSpec::output_elements().
void recurrent_forward(const RecurrentSpec& spec, Precision precision, const RecurrentStep& step,
                       const float* products, const float* recurrent_bias, void* output,
                       cudaStream_t stream);

/// Replaces the values of the gates by the gradients of what they are functions of. The gradient of
/// the output is the sum of those that the next step left, and of `output_gradient`, as `output`
/// above. `recurrent_gates` [rows, width] receives the gradients of the recurrent products of a
/// GRU, for other cells `gates` are these.
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
/// The inverse; direction 1 adds to what is there.
void restore_inputs(const RecurrentSpec& spec, int direction, const void* ordered,
                    const TensorView& input, cudaStream_t stream);

}  // namespace lockstep::model::cuda
