// Operations with one kernel for forward and one for backward.
#include "lockstep/model/cuda/loss.h"
#include "lockstep/model/cuda/operations.h"
#include "lockstep/model/cuda/pooling.h"

namespace lockstep::model::cuda {
namespace {

class Pool2DOperation final : public Operation {
 public:
  Pool2DOperation(Context& context, const Pool2DSpec& spec) : context_(context), spec_(spec) {}

  Needs needs() const override {
    return {.inputs_in_backward = false,
            .output_in_backward = false,
            .saved_bytes = is_max_pooling() && spec_.training ? largest_bytes(spec_.window, spec_.batch) : 0};
  }

  void forward(const Operands& o, const PassContext& /*pass*/) override {
    if (is_max_pooling())
      max_pool_forward(o.inputs[0], spec_.window, spec_.batch, o.output, o.saved.data(), context_.native());
    else
      average_pool_forward(o.inputs[0], spec_.window, spec_.batch, o.output, context_.native());
  }

  void backward(const Operands& o, const PassContext& /*pass*/) override {
    if (o.input_gradients[0].empty()) return;
    if (is_max_pooling())
      max_pool_backward(o.output_gradient, o.saved.data(), spec_.window, spec_.batch, o.input_gradients[0],
                        context_.native());
    else
      average_pool_backward(o.output_gradient, spec_.window, spec_.batch, o.input_gradients[0], context_.native());
  }

 private:
  bool is_max_pooling() const { return spec_.kind == Pool2DSpec::Kind::max; }

  Context& context_;
  Pool2DSpec spec_;
};

class ReluOperation final : public Operation {
 public:
  explicit ReluOperation(Context& context) : context_(context) {}
  Needs needs() const override { return {.inputs_in_backward = false, .output_in_backward = true, .in_place = true}; }
  void forward(const Operands& o, const PassContext& /*pass*/) override {
    relu_forward(o.inputs[0], o.output, context_.native());
  }
  void backward(const Operands& o, const PassContext& /*pass*/) override {
    if (!o.input_gradients[0].empty())
      relu_backward(o.output, o.output_gradient, o.input_gradients[0], context_.native());
  }

 private:
  Context& context_;
};

class SoftmaxOperation final : public Operation {
 public:
  SoftmaxOperation(Context& context, std::int64_t width) : context_(context), width_(width) {}
  Needs needs() const override { return {.inputs_in_backward = false, .output_in_backward = true}; }
  void forward(const Operands& o, const PassContext& /*pass*/) override {
    softmax_forward(o.inputs[0], width_, o.output, context_.native());
  }
  void backward(const Operands& o, const PassContext& /*pass*/) override {
    if (!o.input_gradients[0].empty())
      softmax_backward(o.output, o.output_gradient, width_, o.input_gradients[0], context_.native());
  }

 private:
  Context& context_;
  std::int64_t width_;
};

// Backward recomputes the mask instead of storing it.
class DropoutOperation final : public Operation {
 public:
  DropoutOperation(Context& context, const DropoutSpec& spec, const DropoutKey* key)
      : context_(context), features_(spec.features), rate_(spec.rate), key_(key) {}
  Needs needs() const override { return {.inputs_in_backward = false, .output_in_backward = false, .in_place = true}; }
  void forward(const Operands& o, const PassContext& /*pass*/) override {
    dropout(o.inputs[0], key_, features_, rate_, o.output, context_.native());
  }
  void backward(const Operands& o, const PassContext& /*pass*/) override {
    if (!o.input_gradients[0].empty())
      dropout(o.output_gradient, key_, features_, rate_, o.input_gradients[0], context_.native());
  }

 private:
  Context& context_;
  std::int64_t features_;
  float rate_;
  const DropoutKey* key_;
};

class AddOperation final : public Operation {
 public:
  AddOperation(Context& context, bool relu) : context_(context), relu_(relu) {}
  Needs needs() const override { return {.inputs_in_backward = false, .output_in_backward = relu_, .in_place = true}; }

  void forward(const Operands& o, const PassContext& /*pass*/) override {
    // Input 0 may be the output's memory: each element is read before it is written.
    const std::size_t last = o.inputs.size() - 1;
    for (std::size_t k = 1; k <= last; ++k)
      add(k == 1 ? o.inputs[0] : o.output, o.inputs[k], relu_ && k == last, o.output, context_.native());
  }

  void backward(const Operands& o, const PassContext& /*pass*/) override {
    if (relu_) relu_backward(o.output, o.output_gradient, o.output_gradient, context_.native());
    for (const TensorView& gradient : o.input_gradients)
      if (!gradient.empty() && gradient.data() != o.output_gradient.data())
        device::cuda::check(cudaMemcpyAsync(gradient.data(), o.output_gradient.data(), gradient.size_bytes(),
                                            cudaMemcpyDeviceToDevice, context_.native()),
                            "the gradient of a sum");
  }

 private:
  Context& context_;
  bool relu_;
};

}  // namespace

std::unique_ptr<Operation> make_pool_2d(Context& context, const Pool2DSpec& spec) {
  return std::make_unique<Pool2DOperation>(context, spec);
}
std::unique_ptr<Operation> make_relu(Context& context) { return std::make_unique<ReluOperation>(context); }
std::unique_ptr<Operation> make_softmax(Context& context, std::int64_t width) {
  return std::make_unique<SoftmaxOperation>(context, width);
}
std::unique_ptr<Operation> make_dropout(Context& context, const DropoutSpec& spec, const DropoutKey* key) {
  return std::make_unique<DropoutOperation>(context, spec, key);
}
std::unique_ptr<Operation> make_add(Context& context, bool relu) {
  return std::make_unique<AddOperation>(context, relu);
}

}  // namespace lockstep::model::cuda
