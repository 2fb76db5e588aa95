#include <Eigen/Core>
#include <algorithm>
#include <array>

#include "lockstep/model/cpu/onednn.h"
#include "lockstep/model/layers/recurrent/products.h"
#include "lockstep/model/layers/recurrent/recurrent.h"
#include "lockstep/model/step_profile.h"

namespace lockstep::model::cpu {
namespace {

constexpr auto kFloat = memory::data_type::f32;

// The gates of one sample at a time; 16-bit elements are widened when they are read and rounded
// once when they are written.
template <typename T>
class RecurrentOperation final : public Operation {
 public:
  RecurrentOperation(Context& context, const RecurrentSpec& spec)
      : spec_(spec), layout_(recurrent_layout(spec, sizeof(T))) {
    const RecurrentProducts::Sizes inputs = {spec.all_rows(), spec.inputs, spec.width(), spec.bias,
                                             context.type};
    RecurrentProducts::Sizes recurrent = {spec.rows, spec.units, spec.width(),
                                          spec.recurrent_bias(), kFloat};
    project_ = RecurrentProducts(context, inputs);
    recur_ = RecurrentProducts(context, recurrent);
    std::size_t scratch = std::max(project_.scratch_bytes(), recur_.scratch_bytes());
    if (spec.training) {
      recur_back_ = RecurrentProducts::of_data(context, recurrent);
      recurrent.rows = spec.all_rows();
      recurrent_gradient_ = RecurrentProducts::of_weights(context, recurrent);
      kernel_gradient_ = RecurrentProducts::of_weights(context, inputs);
      scratch = std::max({scratch, recur_back_.scratch_bytes(), recurrent_gradient_.scratch_bytes(),
                          kernel_gradient_.scratch_bytes()});
      if (spec.input_gradient) {
        input_gradient_ = RecurrentProducts::of_data(context, inputs);
        scratch = std::max(scratch, input_gradient_.scratch_bytes());
      }
    }
    const auto elements = [&](std::int64_t steps, std::int64_t columns, std::size_t bytes) {
      return static_cast<std::size_t>(steps * spec.rows * columns) * bytes;
    };
    inputs_at_ = parts_.add(elements(spec.steps, spec.inputs, sizeof(T)));
    products_at_ = parts_.add(elements(1, spec.width(), sizeof(float)));
    if (spec.training) carry_at_ = parts_.add(elements(1, spec.units, sizeof(float)));
    if (spec.training && spec.segments)
      kept_at_ = parts_.add(elements(1, spec.units, sizeof(float)));
    if (spec.training && spec.initial_state)
      initial_at_ = parts_.add(elements(1, spec.states() * spec.units, sizeof(float)));
    if (spec.training && spec.cell == RecurrentCell::gru)
      recurrent_gates_at_ = parts_.add(elements(spec.steps, spec.width(), sizeof(T)));
    library_at_ = parts_.add(scratch);
    if (spec.positions > 0) {
      const std::int64_t rows = (spec.positions + 1) * spec.rows * spec.units;
      cached_state_at_ = cache_.add(static_cast<std::size_t>(rows) * sizeof(T));
      if (spec.cell == RecurrentCell::lstm)
        cache_.add(static_cast<std::size_t>(rows) * sizeof(float));
    }
    for (Values& values : values_) values.resize(spec.units);
  }

  Needs needs() const override {
    return {.inputs_in_backward = true,
            .output_in_backward = false,
            .skips_frozen = true,
            .saved_bytes = static_cast<std::size_t>(spec_.directions) * layout_.bytes,
            .scratch_bytes = parts_.bytes(),
            .cache_bytes = cache_.bytes()};
  }

  void forward(const Operands& t, const PassContext& pass) override {
    for (int direction = 0; direction < spec_.directions; ++direction) {
      const std::size_t first = spec_.first_parameter(direction);
      const Arrays a = arrays(t, direction);
      order_inputs(t, direction);
      Primitive& project = project_.primitive();
      project.place(DNNL_ARG_SRC, a.inputs);
      project_.place_weights(t.weights[first]);
      if (spec_.bias) project.place(DNNL_ARG_BIAS, t.parameters[first + 2]);
      project.place(DNNL_ARG_DST, a.gates);
      project.run(library_scratch(t));

      const std::int64_t outputs = spec_.rows * spec_.units;
      read_initial_state(t, a, direction, pass.position);
      if (spec_.segments) mark_rows(t, a, direction);
      Primitive& recur = recur_.primitive();
      recur_.place_weights(t.weights[first + 1]);
      if (spec_.recurrent_bias()) recur.place(DNNL_ARG_BIAS, t.parameters[first + 3]);
      recur.place(DNNL_ARG_DST, a.products);
      for (std::int64_t step = 0; step < spec_.steps; ++step) {
        restart(a, step);
        recur.place(DNNL_ARG_SRC, a.hidden + step * outputs);
        recur.run(library_scratch(t));
        for (std::int64_t n = 0; n < spec_.rows; ++n) {
          const std::int64_t row = step * spec_.rows + n;
          forward_row(a, row, n);
          if (!spec_.is_output(step)) continue;
          Row<T> output = output_row(t.output, n, step, direction);
          if (spec_.sequences && mark(a, row) == RecurrentMark::padding)
            output.setZero();
          else
            output = outputs_of(a, row + spec_.rows);
        }
      }
      if (spec_.positions > 0) cache_states(t, a, pass.position);
    }
  }

  void backward(const Operands& t, const PassContext& pass) override {
    const bool trains = !t.parameter_gradients[0].empty();
    for (int direction = 0; direction < spec_.directions; ++direction) {
      const std::size_t first = spec_.first_parameter(direction);
      const Arrays a = arrays(t, direction);
      recur_back_.place_weights(t.weights[first + 1]);
      backward_steps(t, a, direction);
      if (!trains) continue;
      weight_gradient(t, recurrent_gradient_, a.hidden, a.recurrent_gates, first + 1,
                      spec_.recurrent_bias() ? first + 3 : 0);
      order_inputs(t, direction);
      weight_gradient(t, kernel_gradient_, a.inputs, a.gates, first, spec_.bias ? first + 2 : 0);
    }
    if (trains) end_part(pass, Part::weight_gradient);
    if (t.input_gradients[0].empty()) return;
    for (int direction = 0; direction < spec_.directions; ++direction) {
      const Arrays a = arrays(t, direction);
      Primitive& product = input_gradient_.primitive();
      input_gradient_.place_weights(t.weights[spec_.first_parameter(direction)]);
      product.place(DNNL_ARG_DIFF_DST, a.gates);
      product.place(DNNL_ARG_DIFF_SRC, a.inputs);
      product.run(library_scratch(t));
      restore_inputs(t, direction);
    }
  }

 private:
  using Values = Eigen::ArrayXf;
  template <typename E>
  using Row = Eigen::Map<Eigen::Array<E, Eigen::Dynamic, 1>>;

  // Of one direction.
  struct Arrays {
    T* inputs;           // [T, rows, inputs], or their gradients
    float* products;     // [rows, width], or [rows, units]: the gradients of the outputs before
    float* carry;        // [rows, units]: what else of a gradient goes to the step before
    float* kept;         // [rows, units]: the gradient that padding leaves to the step before
    float* initial;      // [states, rows, units]: the gradient of the initial state
    T* gates;            // see RecurrentLayout
    T* recurrent_gates;  // [T, rows, width]: gradients of the recurrent products
    T* hidden;
    float* state;
    T* candidates;
    RecurrentMark* marks;
  };

  Arrays arrays(const Operands& t, int direction) const {
    std::byte* const saved = t.saved.data() + static_cast<std::size_t>(direction) * layout_.bytes;
    std::byte* const scratch = t.scratch.data();
    Arrays a = {.inputs = reinterpret_cast<T*>(scratch + inputs_at_),
                .products = reinterpret_cast<float*>(scratch + products_at_),
                .carry = reinterpret_cast<float*>(scratch + carry_at_),
                .kept = reinterpret_cast<float*>(scratch + kept_at_),
                .initial = reinterpret_cast<float*>(scratch + initial_at_),
                .gates = reinterpret_cast<T*>(saved + layout_.gates),
                .recurrent_gates = reinterpret_cast<T*>(scratch + recurrent_gates_at_),
                .hidden = reinterpret_cast<T*>(saved + layout_.hidden),
                .state = reinterpret_cast<float*>(saved + layout_.state),
                .candidates = reinterpret_cast<T*>(saved + layout_.candidates),
                .marks = reinterpret_cast<RecurrentMark*>(saved + layout_.marks)};
    if (spec_.cell != RecurrentCell::gru) a.recurrent_gates = a.gates;
    return a;
  }
  std::span<std::byte> library_scratch(const Operands& t) const {
    return t.scratch.subspan(library_at_);
  }

  template <typename E>
  Row<E> row_of(E* values, std::int64_t row) const {
    return {values + row * spec_.units, spec_.units};
  }
  Row<T> outputs_of(const Arrays& a, std::int64_t row) const { return row_of(a.hidden, row); }
  RecurrentMark mark(const Arrays& a, std::int64_t row) const {
    return spec_.segments ? a.marks[row] : RecurrentMark::next;
  }
  // The cell state that row `row` of all steps, n of its step, reads.
  Row<float> state_before(const Arrays& a, std::int64_t row, std::int64_t n) const {
    return row_of(a.state, mark(a, row) == RecurrentMark::first ? n : row);
  }
  // Array `k` of the initial state of a sample in the memory of an input.
  Row<T> initial_row(const TensorView& view, std::int64_t n, int direction, std::int64_t k) const {
    return {static_cast<T*>(view.data()) + n * spec_.state_elements() +
                spec_.state_offset(direction) + k * spec_.units,
            spec_.units};
  }
  // The part of gate k in a row of [.., width].
  template <typename E>
  Row<E> gate(E* values, std::int64_t row, std::int64_t k) const {
    return {values + row * spec_.width() + k * spec_.units, spec_.units};
  }
  Row<T> output_row(const TensorView& view, std::int64_t n, std::int64_t step,
                    int direction) const {
    return {static_cast<T*>(view.data()) + n * spec_.output_elements() +
                spec_.output_offset(step, direction),
            spec_.units};
  }

  // Writes the states before step 0.
  void read_initial_state(const Operands& t, const Arrays& a, int direction,
                          std::int64_t position) const {
    const std::int64_t count = spec_.rows * spec_.units;
    const bool has_cells = spec_.cell == RecurrentCell::lstm;
    if (spec_.positions > 0) {
      std::copy_n(cached_hidden(t) + position * count, count, a.hidden);
      if (has_cells) std::copy_n(cached_state(t) + position * count, count, a.state);
      return;
    }
    if (!spec_.initial_state) {
      std::fill_n(a.hidden, count, T(0));
      if (has_cells) std::fill_n(a.state, count, 0.0f);
      return;
    }
    for (std::int64_t n = 0; n < spec_.rows; ++n) {
      row_of(a.hidden, n) = initial_row(t.inputs[1], n, direction, 0);
      if (has_cells)
        row_of(a.state, n) = initial_row(t.inputs[1], n, direction, 1).template cast<float>();
    }
  }
  void mark_rows(const Operands& t, const Arrays& a, int direction) const {
    for (std::int64_t n = 0; n < spec_.rows; ++n) {
      std::int32_t document = 0;  // that was read last
      for (std::int64_t step = 0; step < spec_.steps; ++step) {
        const std::int64_t at = n * spec_.steps + spec_.input_position(step, direction);
        const std::int32_t segment = t.indices[static_cast<std::size_t>(at)];
        a.marks[step * spec_.rows + n] = recurrent_mark(document, segment);
        if (segment != 0) document = segment;
      }
    }
  }
  // What a document reads at its first position, if another one was read before.
  void restart(const Arrays& a, std::int64_t step) const {
    if (!spec_.segments) return;
    for (std::int64_t n = 0; n < spec_.rows; ++n)
      if (const std::int64_t row = step * spec_.rows + n; a.marks[row] == RecurrentMark::first)
        outputs_of(a, row) = outputs_of(a, n);
  }
  // The states after positions: [positions + 1, rows, units], at first 0.
  T* cached_hidden(const Operands& t) const { return reinterpret_cast<T*>(t.cache.data()); }
  float* cached_state(const Operands& t) const {
    return reinterpret_cast<float*>(t.cache.data() + cached_state_at_);
  }
  void cache_states(const Operands& t, const Arrays& a, std::int64_t position) const {
    const std::int64_t each = spec_.rows * spec_.units;
    const std::int64_t count = spec_.steps * each;
    std::copy_n(a.hidden + each, count, cached_hidden(t) + (position + 1) * each);
    if (spec_.cell == RecurrentCell::lstm)
      std::copy_n(a.state + each, count, cached_state(t) + (position + 1) * each);
  }

  // Row `row` of all steps and n of the step.
  void forward_row(const Arrays& a, std::int64_t row, std::int64_t n) {
    const auto input = [&](std::int64_t k) { return gate(a.gates, row, k).template cast<float>(); };
    const auto sum = [&](std::int64_t k) { return input(k) + gate(a.products, n, k); };
    const auto keep = [&](std::int64_t k) {
      gate(a.gates, row, k) = values_[k].template cast<T>();
    };
    Row<T> next = outputs_of(a, row + spec_.rows);
    if (mark(a, row) == RecurrentMark::padding) {
      next = outputs_of(a, row);
      if (spec_.cell == RecurrentCell::lstm)
        row_of(a.state, row + spec_.rows) = row_of(a.state, row);
      return;
    }
    switch (spec_.cell) {
      case RecurrentCell::simple_rnn:
        values_[0] = sum(0).tanh();
        keep(0);
        next = values_[0].template cast<T>();
        return;
      case RecurrentCell::gru:
        values_[0] = sum(0).logistic();
        values_[1] = sum(1).logistic();
        values_[2] = (input(2) + values_[0] * gate(a.products, n, 2)).tanh();
        if (spec_.training) row_of(a.candidates, row) = gate(a.products, n, 2).template cast<T>();
        for (std::int64_t k = 0; k < 3; ++k) keep(k);
        next = (values_[2] + values_[1] * (outputs_of(a, row).template cast<float>() - values_[2]))
                   .template cast<T>();
        return;
      case RecurrentCell::lstm: {
        for (const std::int64_t k : {0, 1, 3}) values_[k] = sum(k).logistic();
        values_[2] = sum(2).tanh();
        for (std::int64_t k = 0; k < 4; ++k) keep(k);
        Row<float> state = row_of(a.state, row + spec_.rows);
        state = values_[1] * state_before(a, row, n) + values_[0] * values_[2];
        next = (values_[3] * state.tanh()).template cast<T>();
      }
    }
  }

  void backward_steps(const Operands& t, const Arrays& a, int direction) {
    const bool to_initial = spec_.initial_state && !t.input_gradients[1].empty();
    const std::int64_t count = spec_.rows * spec_.units;
    std::fill_n(a.products, count, 0.0f);
    std::fill_n(a.carry, count, 0.0f);
    if (spec_.segments) std::fill_n(a.kept, count, 0.0f);
    if (spec_.initial_state) std::fill_n(a.initial, spec_.states() * count, 0.0f);
    Primitive& product = recur_back_.primitive();
    product.place(DNNL_ARG_DIFF_SRC, a.products);
    for (std::int64_t step = spec_.steps; step-- > 0;) {
      for (std::int64_t n = 0; n < spec_.rows; ++n) {
        const std::int64_t row = step * spec_.rows + n;
        gradient_ = row_of(a.products, n);
        if (spec_.segments) gradient_ += row_of(a.kept, n);
        if (spec_.is_output(step) && !(spec_.sequences && mark(a, row) == RecurrentMark::padding))
          gradient_ += output_row(t.output_gradient, n, step, direction).template cast<float>();
        backward_row(a, row, n);
      }
      if (step == 0 && !to_initial) return;  // the output before is a constant
      product.place(DNNL_ARG_DIFF_DST, a.recurrent_gates + step * spec_.rows * spec_.width());
      product.run(library_scratch(t));
      for (std::int64_t n = 0; n < spec_.rows; ++n)
        if (step == 0 || mark(a, step * spec_.rows + n) == RecurrentMark::first)
          leave_document(a, n);
    }
    for (std::int64_t n = 0; n < spec_.rows; ++n)
      for (std::int64_t k = 0; k < spec_.states(); ++k)
        initial_row(t.input_gradients[1], n, direction, k) =
            row_of(a.initial, k * spec_.rows + n).template cast<T>();
  }

  // The gradient of the state before a first position is that of the initial state.
  void leave_document(const Arrays& a, std::int64_t n) const {
    Row<float> output = row_of(a.products, n);
    Row<float> carry = row_of(a.carry, n);
    if (spec_.initial_state) {
      Row<float> initial = row_of(a.initial, n);
      initial += output;
      if (spec_.segments) initial += row_of(a.kept, n);
      if (spec_.cell == RecurrentCell::gru) initial += carry;
      if (spec_.cell == RecurrentCell::lstm) row_of(a.initial, spec_.rows + n) += carry;
    }
    output.setZero();
    carry.setZero();
  }

  // From gradient_, that of the output, to those of what the gates are functions of.
  void backward_row(const Arrays& a, std::int64_t row, std::int64_t n) {
    const auto write = [&](std::int64_t k, const auto& value) {
      gate(a.gates, row, k) = value.template cast<T>();
    };
    if (spec_.segments && leaves_to_step_before(a, row, n)) return;
    for (std::int64_t k = 0; k * spec_.units < spec_.width(); ++k)
      values_[k] = gate(a.gates, row, k).template cast<float>();
    Row<float> carry = row_of(a.carry, n);
    switch (spec_.cell) {
      case RecurrentCell::simple_rnn:
        write(0, gradient_ * (1 - values_[0].square()));
        return;
      case RecurrentCell::gru: {
        const Values& r = values_[0];
        const Values& z = values_[1];
        const Values& candidate = values_[2];
        gradient_ += carry;
        carry = gradient_ * z;
        write(1, gradient_ * (outputs_of(a, row).template cast<float>() - candidate) * z * (1 - z));
        gradient_ *= (1 - z) * (1 - candidate.square());
        write(2, gradient_);
        write(0, gradient_ * row_of(a.candidates, row).template cast<float>() * r * (1 - r));
        for (std::int64_t k = 0; k < 2; ++k)
          gate(a.recurrent_gates, row, k) = gate(a.gates, row, k);
        gate(a.recurrent_gates, row, 2) = (gradient_ * r).template cast<T>();
        return;
      }
      case RecurrentCell::lstm: {
        const auto& [i, f, g, o] = values_;
        tanh_ = row_of(a.state, row + spec_.rows).tanh();
        carry += gradient_ * o * (1 - tanh_.square());
        write(3, gradient_ * tanh_ * o * (1 - o));
        write(0, carry * g * i * (1 - i));
        write(1, carry * state_before(a, row, n) * f * (1 - f));
        write(2, carry * i * (1 - g.square()));
        carry *= f;
      }
    }
  }

  // Whether the row is padding, whose gradient is that of the output before.
  bool leaves_to_step_before(const Arrays& a, std::int64_t row, std::int64_t n) const {
    Row<float> kept = row_of(a.kept, n);
    if (a.marks[row] != RecurrentMark::padding) {
      kept.setZero();
      return false;
    }
    kept = gradient_;
    std::fill_n(a.gates + row * spec_.width(), spec_.width(), T(0));
    std::fill_n(a.recurrent_gates + row * spec_.width(), spec_.width(), T(0));
    return true;
  }

  void weight_gradient(const Operands& t, RecurrentProducts& products, const T* source,
                       const T* gradient, std::size_t weights, std::size_t bias) const {
    Primitive& product = products.primitive();
    product.place(DNNL_ARG_SRC, source);
    product.place(DNNL_ARG_DIFF_DST, gradient);
    product.place(DNNL_ARG_DIFF_WEIGHTS, t.parameter_gradients[weights]);
    if (bias > 0) product.place(DNNL_ARG_DIFF_BIAS, t.parameter_gradients[bias]);
    product.run(library_scratch(t));
  }

  // Calls function(elements of a sample at the position, those in the order of steps).
  template <typename Function>
  void for_each_input(const Operands& t, const TensorView& samples, int direction,
                      Function function) const {
    T* const ordered = arrays(t, direction).inputs;
    for (std::int64_t step = 0; step < spec_.steps; ++step)
      for (std::int64_t n = 0; n < spec_.batch; ++n) {
        const std::int64_t row = n * spec_.steps + spec_.input_position(step, direction);
        function(static_cast<T*>(samples.data()) + row * spec_.inputs,
                 ordered + (step * spec_.rows + n) * spec_.inputs);
      }
  }
  void order_inputs(const Operands& t, int direction) const {
    for_each_input(t, t.inputs[0], direction,
                   [&](const T* from, T* to) { std::copy_n(from, spec_.inputs, to); });
  }
  // The gradients of all directions are added.
  void restore_inputs(const Operands& t, int direction) const {
    for_each_input(t, t.input_gradients[0], direction, [&](T* to, T* from) {
      Row<T> target(to, spec_.inputs);
      const Row<T> source(from, spec_.inputs);
      if (direction == 0)
        target = source;
      else
        target = (target.template cast<float>() + source.template cast<float>()).template cast<T>();
    });
  }

  RecurrentSpec spec_;
  RecurrentLayout layout_;
  RecurrentProducts project_;  // of the inputs of all steps
  RecurrentProducts recur_;    // of the outputs of a step
  RecurrentProducts recur_back_;
  RecurrentProducts kernel_gradient_;
  RecurrentProducts recurrent_gradient_;
  RecurrentProducts input_gradient_;
  MemoryParts parts_;
  std::size_t inputs_at_ = 0;
  std::size_t products_at_ = 0;
  std::size_t carry_at_ = 0;
  std::size_t kept_at_ = 0;
  std::size_t initial_at_ = 0;
  std::size_t recurrent_gates_at_ = 0;
  std::size_t library_at_ = 0;
  MemoryParts cache_;
  std::size_t cached_state_at_ = 0;
  std::array<Values, 4> values_;  // of the gates of one sample
  Values gradient_ = Values(spec_.units);
  Values tanh_ = Values(spec_.units);
};

}  // namespace
}  // namespace lockstep::model::cpu

namespace lockstep::model {

std::unique_ptr<Operation> Recurrent::compile_cpu(const CompileContext& context,
                                                  cpu::Context& cpu) const {
  if (cpu.type == dnnl::memory::data_type::bf16)
    return std::make_unique<cpu::RecurrentOperation<Eigen::bfloat16>>(cpu, spec(context));
  return std::make_unique<cpu::RecurrentOperation<float>>(cpu, spec(context));
}

}  // namespace lockstep::model
