#include <algorithm>
#include <optional>

#include "lockstep/model/cuda/bias.h"
#include "lockstep/model/cuda/context.h"
#include "lockstep/model/cuda/matrix_product.h"
#include "lockstep/model/layer/step_profile.h"
#include "lockstep/model/layers/recurrent/kernels.h"
#include "lockstep/model/layers/recurrent/recurrent.h"

namespace lockstep::inline v0::model::cuda {
namespace {

class RecurrentOperation final : public Operation {
 public:
  RecurrentOperation(Context& context, const RecurrentSpec& spec)
      : context_(context),
        precision_(context.options().precision),
        spec_(spec),
        layout_(recurrent_layout(spec, element_bytes(precision_))),
        project_(context, {.rows = spec.all_rows(),
                           .inner = spec.inputs,
                           .columns = spec.width(),
                           .right_is_transposed = true,
                           .bias = spec.bias}),
        recur_(context, {.rows = spec.rows,
                         .inner = spec.units,
                         .columns = spec.width(),
                         .right_is_transposed = true,
                         .result_is_float32 = true}),
        bias_sums_(
            channel_layout(spec.all_rows(), spec.width(), precision_, context.multiprocessors())) {
    std::size_t workspace = std::max(project_.workspace_bytes(), recur_.workspace_bytes());
    const auto add_product = [&](std::optional<MatrixProduct>& product,
                                 const ProductSpec& product_spec) {
      product.emplace(context, product_spec);
      workspace = std::max(workspace, product->workspace_bytes());
    };
    if (spec.training) {
      add_product(recur_back_, {.rows = spec.rows,
                                .inner = spec.width(),
                                .columns = spec.units,
                                .result_is_float32 = true});
      ProductSpec weights{.rows = spec.width(),
                          .inner = spec.all_rows(),
                          .columns = spec.units,
                          .left_is_transposed = true,
                          .result_is_float32 = true};
      add_product(recurrent_gradient_, weights);
      weights.columns = spec.inputs;
      add_product(kernel_gradient_, weights);
      if (spec.input_gradient)
        add_product(input_gradient_,
                    {.rows = spec.all_rows(), .inner = spec.width(), .columns = spec.inputs});
      carry_at_ = scratch_.add(floats_of_step(spec.units));
      if (spec.segments) kept_at_ = scratch_.add(floats_of_step(spec.units));
      if (spec.initial_state)
        initial_at_ = scratch_.add(floats_of_step(spec.states() * spec.units));
      if (spec.cell == RecurrentCell::gru)
        recurrent_gates_at_ = scratch_.add(
            static_cast<std::size_t>(spec.all_rows() * spec.width()) * element_bytes(precision_));
      if (spec.bias) partials_at_ = scratch_.add(partial_bytes(bias_sums_));
    }
    inputs_at_ = scratch_.add(static_cast<std::size_t>(spec.all_rows() * spec.inputs) *
                              element_bytes(precision_));
    products_at_ = scratch_.add(floats_of_step(spec.width()));
    workspace_at_ = scratch_.add(workspace);
  }

  Needs needs() const override {
    return {.inputs_in_backward = true,
            .output_in_backward = false,
            .skips_frozen = true,
            .saved_bytes = static_cast<std::size_t>(spec_.directions) * layout_.bytes,
            .scratch_bytes = scratch_.bytes()};
  }

  void forward(const Operands& o, const PassContext& /*pass*/) override {
    std::byte* const inputs = part_of(o.scratch, inputs_at_);
    auto* const products = reinterpret_cast<float*>(part_of(o.scratch, products_at_));
    std::byte* const workspace = part_of(o.scratch, workspace_at_);
    for (int direction = 0; direction < spec_.directions; ++direction) {
      const std::size_t first = spec_.first_parameter(direction);
      order_inputs(spec_, direction, o.inputs[0], inputs, context_.native());
      project_.run(inputs, o.weights[first].data(),
                   spec_.bias ? o.weights[first + 2].data() : nullptr, workspace,
                   gates(o, direction, 0));
      read_initial_state(spec_, precision_, direction,
                         spec_.initial_state ? o.inputs[1] : TensorView(), hidden(o, direction, 0),
                         state(o, direction, 0), context_.native());
      if (spec_.segments)
        mark_rows(spec_, direction, o.indices, marks(o, direction, 0), context_.native());
      const float* const bias = spec_.recurrent_bias ? o.parameters[first + 3].data() : nullptr;
      for (std::int64_t step = 0; step < spec_.steps; ++step) {
        recur_.run(hidden(o, direction, step), o.weights[first + 1].data(), nullptr, workspace,
                   products);
        recurrent_forward(spec_, precision_, arrays(o, direction, step), products, bias,
                          output_at(o.output, direction, step), context_.native());
      }
    }
  }

  void backward(const Operands& o, const PassContext& pass) override {
    std::byte* const inputs = part_of(o.scratch, inputs_at_);
    std::byte* const workspace = part_of(o.scratch, workspace_at_);
    const bool trains = !o.parameter_gradients[0].empty();
    for (int direction = 0; direction < spec_.directions; ++direction) {
      const std::size_t first = spec_.first_parameter(direction);
      backward_steps(o, direction);
      if (!trains) continue;
      std::byte* const recurrent_gradients = recurrent_gates(o, direction, 0);
      recurrent_gradient_->run(recurrent_gradients, hidden(o, direction, 0), nullptr, workspace,
                               o.parameter_gradients[first + 1].data());
      order_inputs(spec_, direction, o.inputs[0], inputs, context_.native());
      kernel_gradient_->run(gates(o, direction, 0), inputs, nullptr, workspace,
                            o.parameter_gradients[first].data());
      if (spec_.bias) sum_columns(o, gates(o, direction, 0), o.parameter_gradients[first + 2]);
      if (spec_.recurrent_bias)
        sum_columns(o, recurrent_gradients, o.parameter_gradients[first + 3]);
    }
    if (trains) end_part(pass, Part::weight_gradient);
    if (o.input_gradients[0].empty()) return;
    for (int direction = 0; direction < spec_.directions; ++direction) {
      input_gradient_->run(gates(o, direction, 0),
                           o.weights[spec_.first_parameter(direction)].data(), nullptr, workspace,
                           inputs);
      restore_inputs(spec_, direction, inputs, o.input_gradients[0], context_.native());
    }
  }

 private:
  std::size_t floats_of_step(std::int64_t columns) const {
    return static_cast<std::size_t>(spec_.rows * columns) * sizeof(float);
  }
  // The address of a step in a saved array of `columns` columns.
  std::byte* saved_at(const Operands& o, int direction, std::size_t array, std::int64_t step,
                      std::int64_t columns, std::size_t bytes) const {
    return o.saved.data() + static_cast<std::size_t>(direction) * layout_.bytes + array +
           static_cast<std::size_t>(step * spec_.rows * columns) * bytes;
  }
  std::byte* gates(const Operands& o, int direction, std::int64_t step) const {
    return saved_at(o, direction, layout_.gates, step, spec_.width(), element_bytes(precision_));
  }
  std::byte* hidden(const Operands& o, int direction, std::int64_t step) const {
    return saved_at(o, direction, layout_.hidden, step, spec_.units, element_bytes(precision_));
  }
  // Null if there is none.
  float* state(const Operands& o, int direction, std::int64_t step) const {
    if (spec_.cell != RecurrentCell::lstm) return nullptr;
    return reinterpret_cast<float*>(
        saved_at(o, direction, layout_.state, step, spec_.units, sizeof(float)));
  }
  RecurrentMark* marks(const Operands& o, int direction, std::int64_t step) const {
    return reinterpret_cast<RecurrentMark*>(
        saved_at(o, direction, layout_.marks, step, 1, sizeof(RecurrentMark)));
  }
  // The gradients of the recurrent products: those of the gates except for a GRU.
  std::byte* recurrent_gates(const Operands& o, int direction, std::int64_t step) const {
    if (spec_.cell != RecurrentCell::gru) return gates(o, direction, step);
    return part_of(o.scratch, recurrent_gates_at_) +
           static_cast<std::size_t>(step * spec_.rows * spec_.width()) * element_bytes(precision_);
  }
  RecurrentStep arrays(const Operands& o, int direction, std::int64_t step) const {
    RecurrentStep result{.gates = gates(o, direction, step),
                         .hidden_before = hidden(o, direction, step),
                         .hidden = hidden(o, direction, step + 1),
                         .state_before = state(o, direction, step),
                         .state = state(o, direction, step + 1)};
    if (spec_.segments) {
      result.marks = marks(o, direction, step);
      if (step + 1 < spec_.steps) result.next_marks = marks(o, direction, step + 1);
      result.initial_hidden = hidden(o, direction, 0);
      result.initial_state = state(o, direction, 0);
    }
    if (spec_.cell == RecurrentCell::gru && spec_.training)
      result.candidates =
          saved_at(o, direction, layout_.candidates, step, spec_.units, element_bytes(precision_));
    return result;
  }
  // The output of sample 0; null if the step has none.
  void* output_at(const TensorView& output, int direction, std::int64_t step) const {
    if (!spec_.is_output(step)) return nullptr;
    return static_cast<std::byte*>(output.data()) +
           static_cast<std::size_t>(spec_.output_offset(step, direction)) *
               element_bytes(precision_);
  }

  void backward_steps(const Operands& o, int direction) {
    const bool to_initial = spec_.initial_state && !o.input_gradients[1].empty();
    const auto floats = [&](std::size_t part) {
      return reinterpret_cast<float*>(part_of(o.scratch, part));
    };
    float* const products = floats(products_at_);
    const RecurrentGradients gradients{.products = products,
                                       .carry = floats(carry_at_),
                                       .kept = spec_.segments ? floats(kept_at_) : nullptr,
                                       .initial = to_initial ? floats(initial_at_) : nullptr};
    const TensorView& weights = o.weights[spec_.first_parameter(direction) + 1];
    fill_with_zeros(products, spec_.units, sizeof(float));
    fill_with_zeros(gradients.carry, spec_.units, sizeof(float));
    if (spec_.segments) fill_with_zeros(gradients.kept, spec_.units, sizeof(float));
    if (to_initial) fill_with_zeros(gradients.initial, spec_.states() * spec_.units, sizeof(float));
    for (std::int64_t step = spec_.steps; step-- > 0;) {
      std::byte* const recurrent_gradients = recurrent_gates(o, direction, step);
      recurrent_backward(spec_, precision_, arrays(o, direction, step), gradients,
                         output_at(o.output_gradient, direction, step), recurrent_gradients,
                         context_.native());
      if (step > 0 || to_initial)  // else the previous output is a constant
        recur_back_->run(recurrent_gradients, weights.data(), nullptr,
                         part_of(o.scratch, workspace_at_), products);
    }
    if (to_initial)
      write_initial_gradient(spec_, direction, gradients, o.input_gradients[1], context_.native());
  }

  // Fills the rows of one step.
  void fill_with_zeros(void* rows, std::int64_t columns, std::size_t bytes) const {
    device::cuda::check(
        cudaMemsetAsync(rows, 0, static_cast<std::size_t>(spec_.rows * columns) * bytes,
                        context_.native()),
        "zeros");
  }
  void sum_columns(const Operands& o, std::byte* values, std::span<float> sums) const {
    column_sums({values, static_cast<std::size_t>(spec_.all_rows() * spec_.width()), precision_},
                bias_sums_, part_of(o.scratch, partials_at_), sums.data(), context_.native());
  }

  Context& context_;
  Precision precision_;
  RecurrentSpec spec_;
  RecurrentLayout layout_;
  MatrixProduct project_;  // the inputs of all steps
  MatrixProduct recur_;    // the outputs of a step
  std::optional<MatrixProduct> recur_back_;
  std::optional<MatrixProduct> kernel_gradient_;
  std::optional<MatrixProduct> recurrent_gradient_;
  std::optional<MatrixProduct> input_gradient_;
  ChannelLayout bias_sums_;
  ScratchPlan scratch_;
  std::size_t inputs_at_ = 0;
  std::size_t products_at_ = 0;
  std::size_t carry_at_ = 0;
  std::size_t kept_at_ = 0;
  std::size_t initial_at_ = 0;
  std::size_t recurrent_gates_at_ = 0;
  std::size_t partials_at_ = 0;
  std::size_t workspace_at_ = 0;
};

}  // namespace
}  // namespace lockstep::inline v0::model::cuda

namespace lockstep::inline v0::model {

std::unique_ptr<Operation> Recurrent::compile_gpu(const CompileContext& context,
                                                  cuda::Context& gpu) const {
  // cuBLASLt's arrays begin at multiples of 16 bytes, also those of one step.
  constexpr std::int64_t kRows = 8;
  RecurrentSpec padded = spec(context);
  padded.rows = (padded.batch + kRows - 1) / kRows * kRows;
  return std::make_unique<cuda::RecurrentOperation>(gpu, padded);
}

}  // namespace lockstep::inline v0::model
