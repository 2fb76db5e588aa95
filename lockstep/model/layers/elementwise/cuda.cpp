// Operations with one kernel for forward and one for backward.
#include "lockstep/model/cuda/context.h"
#include "lockstep/model/cuda/elementwise.h"
#include "lockstep/model/cuda/loss.h"
#include "lockstep/model/layers/elementwise/elementwise.h"
#include "lockstep/model/layers/elementwise/kernels.h"
#include "lockstep/model/layers/elementwise/pointwise.h"

namespace lockstep::inline v0::model::cuda {
namespace {

class ReluOperation final : public Operation {
 public:
  explicit ReluOperation(Context& context) : context_(context) {}
  Needs needs() const override {
    return {.inputs_in_backward = false, .output_in_backward = true, .in_place = true};
  }
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

// The network, which outlives the plan, owns the layer.
class PointwiseOperation final : public Operation {
 public:
  PointwiseOperation(Context& context, const PointwiseLayer& layer)
      : context_(context), layer_(layer) {}
  Needs needs() const override { return layer_.needs(); }
  void forward(const Operands& o, const PassContext& /*pass*/) override {
    pointwise_forward(layer_, o.inputs[0], o.output, context_.native());
  }
  void backward(const Operands& o, const PassContext& /*pass*/) override {
    if (!o.input_gradients[0].empty())
      pointwise_backward(layer_, layer_.gradient_reads_input() ? o.inputs[0] : o.output,
                         o.output_gradient, o.input_gradients[0], context_.native());
  }

 private:
  Context& context_;
  const PointwiseLayer& layer_;
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
      softmax_backward(o.output, o.output_gradient, width_, o.input_gradients[0],
                       context_.native());
  }

 private:
  Context& context_;
  std::int64_t width_;
};

// Backward recomputes the mask instead of storing it.
class DropoutOperation final : public Operation {
 public:
  DropoutOperation(Context& context, const CompileContext& compiled, float rate)
      : context_(context),
        features_(element_count(compiled.output)),
        rate_(rate),
        key_(context.keys().key(compiled.name)) {}
  Needs needs() const override {
    return {.inputs_in_backward = false, .output_in_backward = false, .in_place = true};
  }
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
  const PassKey* key_;
};

class AddOperation final : public Operation {
 public:
  AddOperation(Context& context, bool relu) : context_(context), relu_(relu) {}
  Needs needs() const override {
    return {.inputs_in_backward = false, .output_in_backward = relu_, .in_place = true};
  }

  void forward(const Operands& o, const PassContext& /*pass*/) override {
    // Input 0 may be the output's memory: each element is read before it is written.
    const std::size_t last = o.inputs.size() - 1;
    for (std::size_t k = 1; k <= last; ++k)
      add(k == 1 ? o.inputs[0] : o.output, o.inputs[k], relu_ && k == last, o.output,
          context_.native());
  }

  void backward(const Operands& o, const PassContext& /*pass*/) override {
    if (relu_) relu_backward(o.output, o.output_gradient, o.output_gradient, context_.native());
    for (const TensorView& gradient : o.input_gradients)
      if (!gradient.empty() && gradient.data() != o.output_gradient.data())
        device::cuda::check(
            cudaMemcpyAsync(gradient.data(), o.output_gradient.data(), gradient.size_bytes(),
                            cudaMemcpyDeviceToDevice, context_.native()),
            "the gradient of a sum");
  }

 private:
  Context& context_;
  bool relu_;
};

class MultiplyOperation final : public Operation {
 public:
  explicit MultiplyOperation(Context& context) : context_(context) {}
  Needs needs() const override { return {.inputs_in_backward = true, .output_in_backward = false}; }

  void forward(const Operands& o, const PassContext& /*pass*/) override {
    for (std::size_t k = 1; k < o.inputs.size(); ++k)
      multiply(k == 1 ? o.inputs[0] : o.output, o.inputs[k], o.output, context_.native());
  }

  // The gradient of an input is the output gradient times all other inputs.
  void backward(const Operands& o, const PassContext& /*pass*/) override {
    for (std::size_t k = 0; k < o.inputs.size(); ++k) {
      const TensorView& gradient = o.input_gradients[k];
      if (gradient.empty()) continue;
      const TensorView* product = &o.output_gradient;
      for (std::size_t other = 0; other < o.inputs.size(); ++other) {
        if (other == k) continue;
        multiply(*product, o.inputs[other], gradient, context_.native());
        product = &gradient;
      }
    }
  }

 private:
  Context& context_;
};

class RepeatedProductOperation final : public Operation {
 public:
  RepeatedProductOperation(Context& context, const Broadcast& broadcast)
      : context_(context), broadcast_(broadcast) {}
  Needs needs() const override { return {.inputs_in_backward = true, .output_in_backward = false}; }

  void forward(const Operands& o, const PassContext& /*pass*/) override {
    const std::size_t larger = broadcast_.larger_input;
    multiply_repeated(o.inputs[larger], o.inputs[1 - larger], broadcast_, o.output,
                      context_.native());
  }

  void backward(const Operands& o, const PassContext& /*pass*/) override {
    const std::size_t larger = broadcast_.larger_input;
    if (const TensorView& gradient = o.input_gradients[larger]; !gradient.empty())
      multiply_repeated(o.output_gradient, o.inputs[1 - larger], broadcast_, gradient,
                        context_.native());
    if (const TensorView& sums = o.input_gradients[1 - larger]; !sums.empty())
      sum_products(o.output_gradient, o.inputs[larger], broadcast_, sums, context_.native());
  }

 private:
  Context& context_;
  Broadcast broadcast_;
};

}  // namespace
}  // namespace lockstep::inline v0::model::cuda

namespace lockstep::inline v0::model {

std::unique_ptr<Operation> ReLU::compile_gpu(const CompileContext& /*context*/,
                                             cuda::Context& gpu) const {
  return std::make_unique<cuda::ReluOperation>(gpu);
}

std::unique_ptr<Operation> PointwiseLayer::compile_gpu(const CompileContext& /*context*/,
                                                       cuda::Context& gpu) const {
  return std::make_unique<cuda::PointwiseOperation>(gpu, *this);
}

std::unique_ptr<Operation> Dropout::compile_gpu(const CompileContext& context,
                                                cuda::Context& gpu) const {
  if (is_identity(context)) return nullptr;
  return std::make_unique<cuda::DropoutOperation>(gpu, context, options_.rate);
}

std::unique_ptr<Operation> Add::compile_gpu(const CompileContext& context,
                                            cuda::Context& gpu) const {
  return std::make_unique<cuda::AddOperation>(gpu, context.fused_relu);
}

std::unique_ptr<Operation> Multiply::compile_gpu(const CompileContext& context,
                                                 cuda::Context& gpu) const {
  if (const auto broadcast = broadcast_of(context.inputs[0], context.inputs[1], context.batch);
      broadcast->repeats > 1)
    return std::make_unique<cuda::RepeatedProductOperation>(gpu, *broadcast);
  return std::make_unique<cuda::MultiplyOperation>(gpu);
}

std::unique_ptr<Operation> Softmax::compile_gpu(const CompileContext& context,
                                                cuda::Context& gpu) const {
  return std::make_unique<cuda::SoftmaxOperation>(gpu, context.output.back());
}

}  // namespace lockstep::inline v0::model
