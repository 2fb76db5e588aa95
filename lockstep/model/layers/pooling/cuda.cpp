#include "lockstep/model/cuda/context.h"
#include "lockstep/model/layers/pooling/bilinear_kernels.h"
#include "lockstep/model/layers/pooling/kernels.h"
#include "lockstep/model/layers/pooling/pooling.h"

namespace lockstep::inline v0::model::cuda {
namespace {

class Pool2DOperation final : public Operation {
 public:
  Pool2DOperation(Context& context, const Pool2DSpec& spec) : context_(context), spec_(spec) {}

  Needs needs() const override {
    return {.inputs_in_backward = false,
            .output_in_backward = false,
            .saved_bytes =
                is_max_pooling() && spec_.training ? largest_bytes(spec_.window, spec_.batch) : 0};
  }

  void forward(const Operands& o, const PassContext& /*pass*/) override {
    if (is_max_pooling())
      max_pool_forward(o.inputs[0], spec_.window, spec_.batch, o.output, o.saved.data(),
                       context_.native());
    else
      average_pool_forward(o.inputs[0], spec_.window, spec_.batch, 1, o.output, context_.native());
  }

  void backward(const Operands& o, const PassContext& /*pass*/) override {
    if (o.input_gradients[0].empty()) return;
    if (is_max_pooling())
      max_pool_backward(o.output_gradient, o.saved.data(), spec_.window, spec_.batch,
                        o.input_gradients[0], context_.native());
    else
      average_pool_backward(o.output_gradient, spec_.window, spec_.batch, 1, o.input_gradients[0],
                            context_.native());
  }

 private:
  bool is_max_pooling() const { return spec_.kind == Pool2DSpec::Kind::max; }

  Context& context_;
  Pool2DSpec spec_;
};

// The backward pass of a pooling that adds, and its forward pass.
class UpSampling2DOperation final : public Operation {
 public:
  UpSampling2DOperation(Context& context, std::int64_t batch, const WindowGeometry& window)
      : context_(context),
        batch_(batch),
        window_(window),
        area_(static_cast<float>(window.kernel_height * window.kernel_width)) {}
  Needs needs() const override {
    return {.inputs_in_backward = false, .output_in_backward = false};
  }

  void forward(const Operands& o, const PassContext& /*pass*/) override {
    average_pool_backward(o.inputs[0], window_, batch_, area_, o.output, context_.native());
  }

  void backward(const Operands& o, const PassContext& /*pass*/) override {
    if (!o.input_gradients[0].empty())
      average_pool_forward(o.output_gradient, window_, batch_, area_, o.input_gradients[0],
                           context_.native());
  }

 private:
  Context& context_;
  std::int64_t batch_;
  WindowGeometry window_;
  float area_;
};

class BilinearOperation final : public Operation {
 public:
  BilinearOperation(Context& context, const BilinearSpec& spec) : context_(context), spec_(spec) {}
  Needs needs() const override {
    return {.inputs_in_backward = false, .output_in_backward = false};
  }

  void forward(const Operands& o, const PassContext& /*pass*/) override {
    bilinear_forward(o.inputs[0], spec_, o.output, context_.native());
  }

  void backward(const Operands& o, const PassContext& /*pass*/) override {
    if (!o.input_gradients[0].empty())
      bilinear_backward(o.output_gradient, spec_, o.input_gradients[0], context_.native());
  }

 private:
  Context& context_;
  BilinearSpec spec_;
};

}  // namespace
}  // namespace lockstep::inline v0::model::cuda

namespace lockstep::inline v0::model {

std::unique_ptr<Operation> Pool2D::compile_gpu(const CompileContext& context,
                                               cuda::Context& gpu) const {
  return std::make_unique<cuda::Pool2DOperation>(gpu, spec(context));
}

std::unique_ptr<Operation> UpSampling2D::compile_gpu(const CompileContext& context,
                                                     cuda::Context& gpu) const {
  if (options_.interpolation == Interpolation::bilinear)
    return std::make_unique<cuda::BilinearOperation>(
        gpu, bilinear_spec(context.batch, context.inputs.front(), options_.size));
  return std::make_unique<cuda::UpSampling2DOperation>(
      gpu, context.batch, reversed_up_sampling(context.output, options_.size));
}

}  // namespace lockstep::inline v0::model
