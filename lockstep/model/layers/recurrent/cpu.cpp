#include <Eigen/Core>
#include <algorithm>

#include "lockstep/model/cpu/float_rows.h"
#include "lockstep/model/cpu/onednn.h"
#include "lockstep/model/layer/step_profile.h"
#include "lockstep/model/layers/recurrent/cells.h"
#include "lockstep/model/layers/recurrent/products.h"
#include "lockstep/model/layers/recurrent/recurrent.h"

namespace lockstep::inline v0::model::cpu {
namespace {

constexpr auto kFloat = memory::data_type::f32;

template <typename T>
class RecurrentOperation final : public Operation {
 public:
  RecurrentOperation(Context& context, const RecurrentSpec& spec)
      : spec_(spec), layout_(recurrent_layout(spec, sizeof(T))), cells_(spec) {
    const RecurrentProducts::Sizes inputs = {spec.all_rows(), spec.inputs, spec.width(), spec.bias,
                                             context.type};
    RecurrentProducts::Sizes recurrent = {spec.rows, spec.units, spec.width(), spec.recurrent_bias,
                                          kFloat};
    project_ = RecurrentProducts(context, inputs);
    recur_ = RecurrentProducts(context, recurrent);
    std::size_t scratch = std::max(project_.scratch_bytes(), recur_.scratch_bytes());
    if (spec.training) {
      recur_back_ = RecurrentProducts::for_data(context, recurrent);
      recurrent.rows = spec.all_rows();
      recurrent_gradient_ = RecurrentProducts::for_weights(context, recurrent);
      kernel_gradient_ = RecurrentProducts::for_weights(context, inputs);
      scratch = std::max({scratch, recur_back_.scratch_bytes(), recurrent_gradient_.scratch_bytes(),
                          kernel_gradient_.scratch_bytes()});
      if (spec.input_gradient) {
        input_gradient_ = RecurrentProducts::for_data(context, inputs);
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
      cache_.add(static_cast<std::size_t>(rows) * sizeof(T));
      if (spec.cell == RecurrentCell::lstm)
        cached_state_at_ = cache_.add(static_cast<std::size_t>(rows) * sizeof(float));
    }
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
      if (spec_.recurrent_bias) recur.place(DNNL_ARG_BIAS, t.parameters[first + 3]);
      recur.place(DNNL_ARG_DST, a.products);
      for (std::int64_t step = 0; step < spec_.steps; ++step) {
        reset_states(a, step);
        recur.place(DNNL_ARG_SRC, a.hidden + step * outputs);
        recur.run(library_scratch(t));
        for (std::int64_t n = 0; n < spec_.rows; ++n) {
          const std::int64_t row = step * spec_.rows + n;
          cells_.forward(a, row, n);
          if (!spec_.is_output(step)) continue;
          Row<T> output = output_row(t.output, n, step, direction);
          if (spec_.sequences && cells_.mark(a, row) == RecurrentMark::padding)
            output.setZero();
          else
            output = cells_.outputs_of(a, row + spec_.rows);
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
                      spec_.recurrent_bias ? first + 3 : 0);
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
  using Arrays = RecurrentArrays<T>;
  template <typename E>
  using Row = typename RecurrentCells<T>::template Row<E>;

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

  // Array `k` of the initial state of a sample in the memory of an input.
  Row<T> initial_row(const TensorView& view, std::int64_t n, int direction, std::int64_t k) const {
    return {static_cast<T*>(view.data()) + n * spec_.state_elements() +
                spec_.state_offset(direction) + k * spec_.units,
            spec_.units};
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
      cells_.row_of(a.hidden, n) = initial_row(t.inputs[1], n, direction, 0);
      if (has_cells)
        cells_.row_of(a.state, n) =
            initial_row(t.inputs[1], n, direction, 1).template cast<float>();
    }
  }
  void mark_rows(const Operands& t, const Arrays& a, int direction) const {
    for (std::int64_t n = 0; n < spec_.rows; ++n) {
      std::int32_t document = 0;  // the last one read
      for (std::int64_t step = 0; step < spec_.steps; ++step) {
        const std::int64_t at = n * spec_.steps + spec_.input_position(step, direction);
        const std::int32_t segment = t.indices[static_cast<std::size_t>(at)];
        a.marks[step * spec_.rows + n] = recurrent_mark(document, segment);
        if (segment != 0) document = segment;
      }
    }
  }
  // Sets the states that a document reads at its first position, if it follows another one.
  void reset_states(const Arrays& a, std::int64_t step) const {
    if (!spec_.segments) return;
    for (std::int64_t n = 0; n < spec_.rows; ++n)
      if (const std::int64_t row = step * spec_.rows + n; a.marks[row] == RecurrentMark::first)
        cells_.outputs_of(a, row) = cells_.outputs_of(a, n);
  }
  // The states after positions: [positions + 1, rows, units], initially 0.
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
        cells_.gradient() = cells_.row_of(a.products, n);
        if (spec_.segments) cells_.gradient() += cells_.row_of(a.kept, n);
        if (spec_.is_output(step) &&
            !(spec_.sequences && cells_.mark(a, row) == RecurrentMark::padding))
          add_to(cells_.gradient().data(), output_row(t.output_gradient, n, step, direction).data(),
                 spec_.units);
        cells_.backward(a, row, n);
      }
      if (step == 0 && !to_initial) return;  // the previous output is a constant
      product.place(DNNL_ARG_DIFF_DST, a.recurrent_gates + step * spec_.rows * spec_.width());
      product.run(library_scratch(t));
      for (std::int64_t n = 0; n < spec_.rows; ++n)
        if (step == 0 || cells_.mark(a, step * spec_.rows + n) == RecurrentMark::first)
          end_document(a, n);
    }
    for (std::int64_t n = 0; n < spec_.rows; ++n)
      for (std::int64_t k = 0; k < spec_.states(); ++k)
        initial_row(t.input_gradients[1], n, direction, k) =
            cells_.row_of(a.initial, k * spec_.rows + n).template cast<T>();
  }

  // The gradient of the state before a first position is that of the initial state.
  void end_document(const Arrays& a, std::int64_t n) const {
    Row<float> output = cells_.row_of(a.products, n);
    Row<float> carry = cells_.row_of(a.carry, n);
    if (spec_.initial_state) {
      Row<float> initial = cells_.row_of(a.initial, n);
      initial += output;
      if (spec_.segments) initial += cells_.row_of(a.kept, n);
      if (spec_.cell == RecurrentCell::gru) initial += carry;
      if (spec_.cell == RecurrentCell::lstm) cells_.row_of(a.initial, spec_.rows + n) += carry;
    }
    output.setZero();
    carry.setZero();
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
      if (direction == 0)
        std::copy_n(from, spec_.inputs, to);
      else
        add(to, from, spec_.inputs, to);
    });
  }

  RecurrentSpec spec_;
  RecurrentLayout layout_;
  RecurrentCells<T> cells_;
  RecurrentProducts project_;  // the inputs of all steps
  RecurrentProducts recur_;    // the outputs of a step
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
};

}  // namespace
}  // namespace lockstep::inline v0::model::cpu

namespace lockstep::inline v0::model {

std::unique_ptr<Operation> Recurrent::compile_cpu(const CompileContext& context,
                                                  cpu::Context& cpu) const {
  if (cpu.type == dnnl::memory::data_type::bf16)
    return std::make_unique<cpu::RecurrentOperation<Eigen::bfloat16>>(cpu, spec(context));
  return std::make_unique<cpu::RecurrentOperation<float>>(cpu, spec(context));
}

}  // namespace lockstep::inline v0::model
