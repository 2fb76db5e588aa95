#include "lockstep/model/layers/recurrent/kernels.h"

#include "lockstep/device/cuda/launch.h"
#include "lockstep/model/cuda/elements.h"
#include "lockstep/model/layers/elementwise/sigmoid.h"
#include "lockstep/model/layers/elementwise/tanh.h"

namespace lockstep::model::cuda {
namespace {

using device::cuda::launch;

// A RecurrentStep of elements T, and the sizes of its arrays.
template <typename T>
struct StepArrays {
  std::int64_t batch, rows, units, width, output_elements;
  T* gates;
  const T* hidden_before;
  T* hidden;
  const float* state_before;
  float* state;
  T* candidates;

  StepArrays(const RecurrentSpec& spec, const RecurrentStep& step)
      : batch(spec.batch),
        rows(spec.rows),
        units(spec.units),
        width(spec.width()),
        output_elements(spec.output_elements()),
        gates(static_cast<T*>(step.gates)),
        hidden_before(static_cast<const T*>(step.hidden_before)),
        hidden(static_cast<T*>(step.hidden)),
        state_before(step.state_before),
        state(step.state),
        candidates(static_cast<T*>(step.candidates)) {}
};

__device__ inline float sigmoid(float x) { return SigmoidFunction::forward(x); }
__device__ inline float hyperbolic_tangent(float x) { return TanhFunction::forward(x); }
// Of what a gate is a function of, from its value and its gradient.
__device__ inline float sigmoid_gradient(float y, float dy) {
  return SigmoidFunction::gradient(y, dy);
}
__device__ inline float tanh_gradient(float y, float dy) { return TanhFunction::gradient(y, dy); }

// A thread computes one unit of one sample.
template <typename T, RecurrentCell kCell>
__global__ void step_forward(StepArrays<T> a, const float* products, const float* recurrent_bias,
                             T* output) {
  for (auto i = static_cast<std::int64_t>(first_index()); i < a.rows * a.units;
       i += static_cast<std::int64_t>(index_stride())) {
    const std::int64_t row = i / a.units;
    const std::int64_t unit = i % a.units;
    T* const gates = a.gates + row * a.width + unit;
    const auto input = [&](int k) { return widen(gates[k * a.units]); };
    const auto recurrent = [&](int k) {
      const float bias = recurrent_bias == nullptr ? 0 : recurrent_bias[k * a.units + unit];
      return products[row * a.width + k * a.units + unit] + bias;
    };
    const auto keep = [&](int k, float value) { gates[k * a.units] = narrow<T>(value); };
    float next = 0;
    if constexpr (kCell == RecurrentCell::simple_rnn) {
      next = hyperbolic_tangent(input(0) + recurrent(0));
      keep(0, next);
    } else if constexpr (kCell == RecurrentCell::gru) {
      const float r = sigmoid(input(0) + recurrent(0));
      const float z = sigmoid(input(1) + recurrent(1));
      const float candidate = recurrent(2);
      const float n = hyperbolic_tangent(input(2) + r * candidate);
      if (a.candidates != nullptr) a.candidates[i] = narrow<T>(candidate);
      keep(0, r);
      keep(1, z);
      keep(2, n);
      next = n + z * (widen(a.hidden_before[i]) - n);
    } else {
      const float in = sigmoid(input(0) + recurrent(0));
      const float forget = sigmoid(input(1) + recurrent(1));
      const float g = hyperbolic_tangent(input(2) + recurrent(2));
      const float out = sigmoid(input(3) + recurrent(3));
      keep(0, in);
      keep(1, forget);
      keep(2, g);
      keep(3, out);
      const float state = forget * a.state_before[i] + in * g;
      a.state[i] = state;
      next = out * hyperbolic_tangent(state);
    }
    a.hidden[i] = narrow<T>(next);
    if (output != nullptr && row < a.batch)
      output[row * a.output_elements + unit] = narrow<T>(next);
  }
}

template <typename T, RecurrentCell kCell>
__global__ void step_backward(StepArrays<T> a, const float* products, const T* output_gradient,
                              float* carry, T* recurrent_gates) {
  for (auto i = static_cast<std::int64_t>(first_index()); i < a.rows * a.units;
       i += static_cast<std::int64_t>(index_stride())) {
    const std::int64_t row = i / a.units;
    const std::int64_t unit = i % a.units;
    const std::int64_t begin = row * a.width + unit;
    const auto value = [&](int k) { return widen(a.gates[begin + k * a.units]); };
    const auto write = [&](int k, float gradient) {
      a.gates[begin + k * a.units] = narrow<T>(gradient);
    };
    float gradient = products[i];
    if (output_gradient != nullptr && row < a.batch)
      gradient += widen(output_gradient[row * a.output_elements + unit]);
    if constexpr (kCell == RecurrentCell::simple_rnn) {
      write(0, tanh_gradient(value(0), gradient));
    } else if constexpr (kCell == RecurrentCell::gru) {
      const float r = value(0);
      const float z = value(1);
      const float n = value(2);
      gradient += carry[i];
      carry[i] = gradient * z;
      const float of_r_n = tanh_gradient(n, gradient * (1 - z));
      const float of_r = sigmoid_gradient(r, of_r_n * widen(a.candidates[i]));
      const float of_z = sigmoid_gradient(z, gradient * (widen(a.hidden_before[i]) - n));
      write(0, of_r);
      write(1, of_z);
      write(2, of_r_n);
      recurrent_gates[begin] = narrow<T>(of_r);
      recurrent_gates[begin + a.units] = narrow<T>(of_z);
      recurrent_gates[begin + 2 * a.units] = narrow<T>(of_r_n * r);
    } else {
      const float in = value(0);
      const float forget = value(1);
      const float g = value(2);
      const float out = value(3);
      const float bounded = hyperbolic_tangent(a.state[i]);
      const float of_state = carry[i] + tanh_gradient(bounded, gradient * out);
      carry[i] = of_state * forget;
      write(0, sigmoid_gradient(in, of_state * g));
      write(1, sigmoid_gradient(forget, of_state * a.state_before[i]));
      write(2, tanh_gradient(g, of_state * in));
      write(3, sigmoid_gradient(out, gradient * bounded));
    }
  }
}

// The order of [T, rows, F] in [batch, T, F].
struct InputOrder {
  std::int64_t batch, rows, steps, inputs;
  bool is_reversed;

  InputOrder(const RecurrentSpec& spec, int direction)
      : batch(spec.batch),
        rows(spec.rows),
        steps(spec.steps),
        inputs(spec.inputs),
        is_reversed(spec.input_position(0, direction) != 0) {}
  std::size_t count() const { return static_cast<std::size_t>(steps * rows * inputs); }

  // The index in [batch, T, F] of element i of [T, rows, F]; negative after the batch.
  __device__ std::int64_t index(std::int64_t i) const {
    const std::int64_t sample = i / inputs % rows;
    const std::int64_t step = i / (inputs * rows);
    if (sample >= batch) return -1;
    return (sample * steps + (is_reversed ? steps - 1 - step : step)) * inputs + i % inputs;
  }
};

template <typename T>
__global__ void order(const T* input, InputOrder o, std::int64_t count, T* ordered) {
  for (auto i = static_cast<std::int64_t>(first_index()); i < count;
       i += static_cast<std::int64_t>(index_stride())) {
    const std::int64_t from = o.index(i);
    ordered[i] = from < 0 ? narrow<T>(0) : input[from];
  }
}

template <typename T>
__global__ void restore(const T* ordered, InputOrder o, std::int64_t count, bool add, T* input) {
  for (auto i = static_cast<std::int64_t>(first_index()); i < count;
       i += static_cast<std::int64_t>(index_stride())) {
    const std::int64_t to = o.index(i);
    if (to < 0) continue;
    input[to] = add ? narrow<T>(widen(input[to]) + widen(ordered[i])) : ordered[i];
  }
}

// Calls function(T{}, std::integral_constant<RecurrentCell, cell>{}).
template <typename Function>
void with_cell(const RecurrentSpec& spec, Precision precision, Function&& function) {
  with_type(precision, [&]<typename T>(T zero) {
    switch (spec.cell) {
      case RecurrentCell::simple_rnn:
        return function(zero, std::integral_constant<RecurrentCell, RecurrentCell::simple_rnn>());
      case RecurrentCell::gru:
        return function(zero, std::integral_constant<RecurrentCell, RecurrentCell::gru>());
      case RecurrentCell::lstm:
        return function(zero, std::integral_constant<RecurrentCell, RecurrentCell::lstm>());
    }
  });
}

unsigned blocks_of_step(const RecurrentSpec& spec) {
  return blocks_for(static_cast<std::size_t>(spec.rows * spec.units));
}

}  // namespace

void recurrent_forward(const RecurrentSpec& spec, Precision precision, const RecurrentStep& step,
                       const float* products, const float* recurrent_bias, void* output,
                       cudaStream_t stream) {
  with_cell(spec, precision,
            [&]<typename T, RecurrentCell kCell>(T, std::integral_constant<RecurrentCell, kCell>) {
              launch(step_forward<T, kCell>, blocks_of_step(spec), kThreads, stream,
                     StepArrays<T>(spec, step), products, recurrent_bias, static_cast<T*>(output));
            });
}

void recurrent_backward(const RecurrentSpec& spec, Precision precision, const RecurrentStep& step,
                        const float* products, const void* output_gradient, float* carry,
                        void* recurrent_gates, cudaStream_t stream) {
  with_cell(spec, precision,
            [&]<typename T, RecurrentCell kCell>(T, std::integral_constant<RecurrentCell, kCell>) {
              launch(step_backward<T, kCell>, blocks_of_step(spec), kThreads, stream,
                     StepArrays<T>(spec, step), products, static_cast<const T*>(output_gradient),
                     carry, static_cast<T*>(recurrent_gates));
            });
}

void order_inputs(const RecurrentSpec& spec, int direction, const TensorView& input, void* ordered,
                  cudaStream_t stream) {
  const InputOrder of(spec, direction);
  with_type(input.type(), [&]<typename T>(T) {
    launch(order<T>, blocks_for(of.count()), kThreads, stream, data<T>(input), of,
           static_cast<std::int64_t>(of.count()), static_cast<T*>(ordered));
  });
}

void restore_inputs(const RecurrentSpec& spec, int direction, const void* ordered,
                    const TensorView& input, cudaStream_t stream) {
  const InputOrder of(spec, direction);
  with_type(input.type(), [&]<typename T>(T) {
    launch(restore<T>, blocks_for(of.count()), kThreads, stream, static_cast<const T*>(ordered), of,
           static_cast<std::int64_t>(of.count()), direction == 1, data<T>(input));
  });
}

}  // namespace lockstep::model::cuda
