#include "lockstep/model/layers/recurrent/kernels.h"

#include "lockstep/device/cuda/launch.h"
#include "lockstep/model/cuda/elements.h"
#include "lockstep/model/layers/elementwise/sigmoid.h"
#include "lockstep/model/layers/elementwise/tanh.h"

namespace lockstep::inline v0::model::cuda {
namespace {

using device::cuda::launch;

// A RecurrentStep of elements T, and the sizes of its arrays.
template <typename T>
struct StepArrays {
  std::int64_t batch, rows, units, width, output_elements;
  bool sequences;
  T* gates;
  const T* hidden_before;
  T* hidden;
  const float* state_before;
  float* state;
  T* candidates;
  const RecurrentMark* marks;
  const RecurrentMark* next_marks;
  const T* initial_hidden;
  const float* initial_state;

  StepArrays(const RecurrentSpec& spec, const RecurrentStep& step)
      : batch(spec.batch),
        rows(spec.rows),
        units(spec.units),
        width(spec.width()),
        output_elements(spec.output_elements()),
        sequences(spec.sequences),
        gates(static_cast<T*>(step.gates)),
        hidden_before(static_cast<const T*>(step.hidden_before)),
        hidden(static_cast<T*>(step.hidden)),
        state_before(step.state_before),
        state(step.state),
        candidates(static_cast<T*>(step.candidates)),
        marks(step.marks),
        next_marks(step.next_marks),
        initial_hidden(static_cast<const T*>(step.initial_hidden)),
        initial_state(step.initial_state) {}

  __device__ RecurrentMark mark(std::int64_t row) const {
    return marks == nullptr ? RecurrentMark::next : marks[row];
  }
  // Whether the next step reads the initial state.
  __device__ bool ends_document(std::int64_t row) const {
    return next_marks != nullptr && next_marks[row] == RecurrentMark::first;
  }
  // The cell state that the step reads, for element i of [rows, units].
  __device__ float cell_before(std::int64_t i) const {
    return mark(i / units) == RecurrentMark::first ? initial_state[i] : state_before[i];
  }
};

__device__ inline float sigmoid(float x) { return SigmoidFunction::forward(x); }
__device__ inline float hyperbolic_tangent(float x) { return TanhFunction::forward(x); }
// The gradient of the preactivation of a gate, from the value and gradient of the gate.
__device__ inline float sigmoid_gradient(float y, float dy) {
  return SigmoidFunction::gradient(y, dy);
}
__device__ inline float tanh_gradient(float y, float dy) { return TanhFunction::gradient(y, dy); }

// The output of element i of [rows, units].
template <typename T, RecurrentCell kCell>
__device__ float cell_forward(const StepArrays<T>& a, std::int64_t i, const float* products,
                              const float* recurrent_bias) {
  const std::int64_t row = i / a.units;
  const std::int64_t unit = i % a.units;
  T* const gates = a.gates + row * a.width + unit;
  const auto input = [&](int k) { return widen(gates[k * a.units]); };
  const auto recurrent = [&](int k) {
    const float bias = recurrent_bias == nullptr ? 0 : recurrent_bias[k * a.units + unit];
    return products[row * a.width + k * a.units + unit] + bias;
  };
  const auto store_gate = [&](int k, float value) { gates[k * a.units] = narrow<T>(value); };
  if constexpr (kCell == RecurrentCell::simple_rnn) {
    const float next = hyperbolic_tangent(input(0) + recurrent(0));
    store_gate(0, next);
    return next;
  } else if constexpr (kCell == RecurrentCell::gru) {
    const float r = sigmoid(input(0) + recurrent(0));
    const float z = sigmoid(input(1) + recurrent(1));
    const float candidate = recurrent(2);
    const float n = hyperbolic_tangent(input(2) + r * candidate);
    if (a.candidates != nullptr) a.candidates[i] = narrow<T>(candidate);
    store_gate(0, r);
    store_gate(1, z);
    store_gate(2, n);
    return n + z * (widen(a.hidden_before[i]) - n);
  } else {
    const float in = sigmoid(input(0) + recurrent(0));
    const float forget = sigmoid(input(1) + recurrent(1));
    const float g = hyperbolic_tangent(input(2) + recurrent(2));
    const float out = sigmoid(input(3) + recurrent(3));
    store_gate(0, in);
    store_gate(1, forget);
    store_gate(2, g);
    store_gate(3, out);
    const float state = forget * a.cell_before(i) + in * g;
    a.state[i] = state;
    return out * hyperbolic_tangent(state);
  }
}

// A thread computes one unit of one sample.
template <typename T, RecurrentCell kCell>
__global__ void step_forward(StepArrays<T> a, const float* products, const float* recurrent_bias,
                             T* output) {
  for (auto i = static_cast<std::int64_t>(first_index()); i < a.rows * a.units;
       i += static_cast<std::int64_t>(index_stride())) {
    const std::int64_t row = i / a.units;
    const bool is_padding = a.mark(row) == RecurrentMark::padding;
    float next = 0;
    if (is_padding) {
      next = widen(a.hidden_before[i]);
      if constexpr (kCell == RecurrentCell::lstm) a.state[i] = a.state_before[i];
    } else {
      next = cell_forward<T, kCell>(a, i, products, recurrent_bias);
    }
    a.hidden[i] = a.ends_document(row) ? a.initial_hidden[i] : narrow<T>(next);
    if (output != nullptr && row < a.batch)
      output[row * a.output_elements + i % a.units] =
          narrow<T>(is_padding && a.sequences ? 0.0f : next);
  }
}

// The gradient of the initial state from element i of [rows, units], in addition to `products`.
template <RecurrentCell kCell>
__device__ void add_initial_gradient(const RecurrentGradients& g, std::int64_t i,
                                     std::int64_t elements, float products) {
  g.initial[i] += kCell == RecurrentCell::gru ? products + g.carry[i] : products;
  if constexpr (kCell == RecurrentCell::lstm) g.initial[elements + i] += g.carry[i];
}

// Backward of element i of [rows, units], from the gradient of its output.
template <typename T, RecurrentCell kCell>
__device__ void cell_backward(const StepArrays<T>& a, std::int64_t i, float gradient, float* carry,
                              T* recurrent_gates) {
  const std::int64_t begin = i / a.units * a.width + i % a.units;
  const auto value = [&](int k) { return widen(a.gates[begin + k * a.units]); };
  const auto write = [&](int k, float gradient_of_gate) {
    a.gates[begin + k * a.units] = narrow<T>(gradient_of_gate);
  };
  if constexpr (kCell == RecurrentCell::simple_rnn) {
    write(0, tanh_gradient(value(0), gradient));
  } else if constexpr (kCell == RecurrentCell::gru) {
    const float r = value(0);
    const float z = value(1);
    const float n = value(2);
    gradient += carry[i];
    carry[i] = gradient * z;
    const float candidate_gradient = tanh_gradient(n, gradient * (1 - z));
    const float reset_gradient = sigmoid_gradient(r, candidate_gradient * widen(a.candidates[i]));
    const float update_gradient = sigmoid_gradient(z, gradient * (widen(a.hidden_before[i]) - n));
    write(0, reset_gradient);
    write(1, update_gradient);
    write(2, candidate_gradient);
    recurrent_gates[begin] = narrow<T>(reset_gradient);
    recurrent_gates[begin + a.units] = narrow<T>(update_gradient);
    recurrent_gates[begin + 2 * a.units] = narrow<T>(candidate_gradient * r);
  } else {
    const float in = value(0);
    const float forget = value(1);
    const float g = value(2);
    const float out = value(3);
    const float bounded = hyperbolic_tangent(a.state[i]);
    const float state_gradient = carry[i] + tanh_gradient(bounded, gradient * out);
    carry[i] = state_gradient * forget;
    write(0, sigmoid_gradient(in, state_gradient * g));
    write(1, sigmoid_gradient(forget, state_gradient * a.cell_before(i)));
    write(2, tanh_gradient(g, state_gradient * in));
    write(3, sigmoid_gradient(out, gradient * bounded));
  }
}

template <typename T, RecurrentCell kCell>
__global__ void step_backward(StepArrays<T> a, RecurrentGradients g, const T* output_gradient,
                              T* recurrent_gates) {
  for (auto i = static_cast<std::int64_t>(first_index()); i < a.rows * a.units;
       i += static_cast<std::int64_t>(index_stride())) {
    const std::int64_t row = i / a.units;
    const bool is_padding = a.mark(row) == RecurrentMark::padding;
    float gradient = g.products[i];
    if (a.ends_document(row)) {
      if (g.initial != nullptr) add_initial_gradient<kCell>(g, i, a.rows * a.units, gradient);
      g.carry[i] = 0;
      gradient = 0;
    }
    if (g.kept != nullptr) gradient += g.kept[i];
    if (output_gradient != nullptr && row < a.batch && !(is_padding && a.sequences))
      gradient += widen(output_gradient[row * a.output_elements + i % a.units]);
    if (g.kept != nullptr) g.kept[i] = is_padding ? gradient : 0;
    if (!is_padding) {
      cell_backward<T, kCell>(a, i, gradient, g.carry, recurrent_gates);
      continue;
    }
    const std::int64_t begin = row * a.width + i % a.units;
    for (std::int64_t k = 0; k < a.width; k += a.units)
      a.gates[begin + k] = recurrent_gates[begin + k] = narrow<T>(0);
  }
}

__global__ void mark_positions(const std::int32_t* segments, std::int64_t batch, std::int64_t rows,
                               std::int64_t steps, bool is_reversed, RecurrentMark* marks) {
  for (auto row = static_cast<std::int64_t>(first_index()); row < rows;
       row += static_cast<std::int64_t>(index_stride())) {
    std::int32_t document = 0;  // the last one read
    for (std::int64_t step = 0; step < steps; ++step) {
      const std::int64_t position = is_reversed ? steps - 1 - step : step;
      const std::int32_t segment = row < batch ? segments[row * steps + position] : 0;
      marks[step * rows + row] = recurrent_mark(document, segment);
      if (segment != 0) document = segment;
    }
  }
}

// Rows of the initial state [batch, elements], from an offset on.
struct InitialRows {
  std::int64_t batch, rows, units, elements, offset;

  InitialRows(const RecurrentSpec& spec, int direction)
      : batch(spec.batch),
        rows(spec.rows),
        units(spec.units),
        elements(spec.state_elements()),
        offset(spec.state_offset(direction)) {}

  // The index of element i of [rows, units]; the cell state is `units` further.
  __device__ std::int64_t index(std::int64_t i) const {
    return i / units * elements + offset + i % units;
  }
};

template <typename T>
__global__ void read_initial(const T* input, InitialRows r, T* hidden, float* state) {
  for (auto i = static_cast<std::int64_t>(first_index()); i < r.rows * r.units;
       i += static_cast<std::int64_t>(index_stride())) {
    const bool has_value = input != nullptr && i < r.batch * r.units;
    hidden[i] = has_value ? input[r.index(i)] : narrow<T>(0);
    if (state != nullptr) state[i] = has_value ? widen(input[r.index(i) + r.units]) : 0;
  }
}

template <typename T, RecurrentCell kCell>
__global__ void write_initial(RecurrentGradients g, InitialRows r, T* input_gradient) {
  for (auto i = static_cast<std::int64_t>(first_index()); i < r.batch * r.units;
       i += static_cast<std::int64_t>(index_stride())) {
    const float kept = g.kept == nullptr ? 0 : g.kept[i];
    add_initial_gradient<kCell>(g, i, r.rows * r.units, g.products[i] + kept);
    input_gradient[r.index(i)] = narrow<T>(g.initial[i]);
    if constexpr (kCell == RecurrentCell::lstm)
      input_gradient[r.index(i) + r.units] = narrow<T>(g.initial[r.rows * r.units + i]);
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
        is_reversed(spec.is_reversed(direction)) {}
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
                        const RecurrentGradients& gradients, const void* output_gradient,
                        void* recurrent_gates, cudaStream_t stream) {
  with_cell(spec, precision,
            [&]<typename T, RecurrentCell kCell>(T, std::integral_constant<RecurrentCell, kCell>) {
              launch(step_backward<T, kCell>, blocks_of_step(spec), kThreads, stream,
                     StepArrays<T>(spec, step), gradients, static_cast<const T*>(output_gradient),
                     static_cast<T*>(recurrent_gates));
            });
}

void mark_rows(const RecurrentSpec& spec, int direction, std::span<const std::int32_t> segments,
               RecurrentMark* marks, cudaStream_t stream) {
  launch(mark_positions, blocks_for(static_cast<std::size_t>(spec.rows)), kThreads, stream,
         segments.data(), spec.batch, spec.rows, spec.steps, spec.is_reversed(direction), marks);
}

void read_initial_state(const RecurrentSpec& spec, Precision precision, int direction,
                        const TensorView& input, void* hidden, float* state, cudaStream_t stream) {
  with_type(precision, [&]<typename T>(T) {
    const T* const given = spec.initial_state ? data<T>(input) : nullptr;
    launch(read_initial<T>, blocks_of_step(spec), kThreads, stream, given,
           InitialRows(spec, direction), static_cast<T*>(hidden), state);
  });
}

void write_initial_gradient(const RecurrentSpec& spec, int direction,
                            const RecurrentGradients& gradients, const TensorView& input_gradient,
                            cudaStream_t stream) {
  with_cell(spec, input_gradient.type(),
            [&]<typename T, RecurrentCell kCell>(T, std::integral_constant<RecurrentCell, kCell>) {
              launch(write_initial<T, kCell>, blocks_of_step(spec), kThreads, stream, gradients,
                     InitialRows(spec, direction), data<T>(input_gradient));
            });
}

void order_inputs(const RecurrentSpec& spec, int direction, const TensorView& input, void* ordered,
                  cudaStream_t stream) {
  const InputOrder input_order(spec, direction);
  with_type(input.type(), [&]<typename T>(T) {
    launch(order<T>, blocks_for(input_order.count()), kThreads, stream, data<T>(input), input_order,
           static_cast<std::int64_t>(input_order.count()), static_cast<T*>(ordered));
  });
}

void restore_inputs(const RecurrentSpec& spec, int direction, const void* ordered,
                    const TensorView& input, cudaStream_t stream) {
  const InputOrder input_order(spec, direction);
  with_type(input.type(), [&]<typename T>(T) {
    launch(restore<T>, blocks_for(input_order.count()), kThreads, stream,
           static_cast<const T*>(ordered), input_order,
           static_cast<std::int64_t>(input_order.count()), direction == 1, data<T>(input));
  });
}

}  // namespace lockstep::inline v0::model::cuda
