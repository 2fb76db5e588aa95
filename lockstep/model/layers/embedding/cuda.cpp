#include <algorithm>
#include <utility>
#include <vector>

#include "lockstep/device/host_view.h"
#include "lockstep/model/cuda/bias.h"
#include "lockstep/model/cuda/context.h"
#include "lockstep/model/cuda/elementwise.h"
#include "lockstep/model/layers/embedding/embedding.h"
#include "lockstep/model/layers/embedding/kernels.h"
#include "lockstep/model/layers/embedding/positional_embedding.h"

namespace lockstep::inline v0::model::cuda {
namespace {

class EmbeddingOperation final : public Operation {
 public:
  EmbeddingOperation(Context& context, const EmbeddingSpec& spec)
      : context_(context), spec_(spec) {}

  Needs needs() const override {
    return {.output_in_backward = false,
            .scratch_bytes = spec_.training ? sum_rows_bytes(spec_.count) : 0};
  }

  void forward(const Operands& o, const PassContext& /*pass*/) override {
    gather_rows(o.weights[0], o.indices, spec_.dimension, o.output, context_.native());
  }

  void backward(const Operands& o, const PassContext& /*pass*/) override {
    sum_rows(o.output_gradient, o.indices, spec_.dimension, o.parameter_gradients[0],
             o.add_parameter_gradient, o.scratch.data(), context_.native());
  }

 private:
  Context& context_;
  EmbeddingSpec spec_;
};

class PositionalEmbeddingOperation final : public Operation {
 public:
  // `table`: empty if it is a parameter.
  PositionalEmbeddingOperation(Context& context, const PositionalEmbeddingSpec& spec,
                               const std::vector<float>& table)
      : context_(context),
        elements_(static_cast<std::size_t>(spec.elements)),
        width_(static_cast<std::size_t>(spec.width)),
        layout_(channel_layout(spec.samples, spec.elements, context.options().precision,
                               context.multiprocessors())),
        partials_at_(scratch_.add(spec.training && table.empty() ? partial_bytes(layout_) : 0)) {
    if (!table.empty()) upload(table);
  }

  Needs needs() const override {
    return {.inputs_in_backward = false,
            .output_in_backward = false,
            .in_place = true,
            .skips_frozen = true,
            .scratch_bytes = scratch_.bytes()};
  }

  void forward(const Operands& o, const PassContext& pass) override {
    const TensorView& table = fixed_.empty() ? o.weights[0] : fixed_;
    const std::size_t begin = static_cast<std::size_t>(pass.position) * width_;
    auto* const rows = static_cast<std::byte*>(table.data()) + begin * element_bytes(table.type());
    add_table(o.inputs[0], {rows, elements_, table.type()}, o.output, context_.native());
  }

  void backward(const Operands& o, const PassContext& /*pass*/) override {
    if (!o.parameter_gradients.empty() && !o.parameter_gradients[0].empty()) {
      column_sums(o.output_gradient, layout_, part_of(o.scratch, partials_at_),
                  o.parameter_gradients[0].data(), context_.native());
      if (const auto unused = o.parameter_gradients[0].subspan(elements_); !unused.empty())
        device::cuda::check(
            cudaMemsetAsync(unused.data(), 0, unused.size_bytes(), context_.native()), "zeros");
    }
    if (!o.input_gradients[0].empty() && o.input_gradients[0].data() != o.output_gradient.data())
      device::cuda::check(cudaMemcpyAsync(o.input_gradients[0].data(), o.output_gradient.data(),
                                          o.output_gradient.size_bytes(), cudaMemcpyDeviceToDevice,
                                          context_.native()),
                          "the gradient of a sum");
  }

 private:
  // Copies `table` to the GPU, in the type of the activations.
  void upload(const std::vector<float>& table) {
    const Precision type = context_.options().precision;
    device::Buffer wide = context_.allocator().allocate(table.size() * sizeof(float));
    device::HostView view(wide.as<float>(), context_.stream());
    std::ranges::copy(table, view.values().begin());
    view.write_back(context_.stream());
    if (type != Precision::float32) {
      table_ = context_.allocator().allocate(table.size() * element_bytes(type));
      fixed_ = {table_.data(), table.size(), type};
      convert(wide.as<float>(), fixed_, context_.native());
      context_.stream().synchronize();
      return;
    }
    table_ = std::move(wide);
    fixed_ = table_.as<float>();
  }

  Context& context_;
  std::size_t elements_;  // used elements of the table
  std::size_t width_;     // stride of the rows; 0 if all positions share one
  ChannelLayout layout_;
  ScratchPlan scratch_;
  std::size_t partials_at_;
  device::Buffer table_;
  TensorView fixed_;
};

}  // namespace
}  // namespace lockstep::inline v0::model::cuda

namespace lockstep::inline v0::model {

std::unique_ptr<Operation> Embedding::compile_gpu(const CompileContext& context,
                                                  cuda::Context& gpu) const {
  return std::make_unique<cuda::EmbeddingOperation>(gpu, spec(context));
}

std::unique_ptr<Operation> PositionalEmbedding::compile_gpu(const CompileContext& context,
                                                            cuda::Context& gpu) const {
  return std::make_unique<cuda::PositionalEmbeddingOperation>(gpu, spec(context),
                                                              fixed_table(context));
}

}  // namespace lockstep::inline v0::model
