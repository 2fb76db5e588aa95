#include "lockstep/model/layer/custom_layer.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/model/layer/backend.h"

namespace lockstep::inline v0::model {
namespace {

// Runs a user-defined layer in a plan. The plan's owner keeps the network, and thus the layer,
// alive.
class CustomOperation final : public Operation {
 public:
  CustomOperation(const CustomLayer& layer, const Needs& needs) : layer_(layer), needs_(needs) {}
  Needs needs() const override { return needs_; }
  void forward(const Operands& operands, const PassContext& pass) override {
    layer_.forward(seen(operands), pass);
  }
  void backward(const Operands& operands, const PassContext& pass) override {
    layer_.backward(seen(operands), pass);
  }

 private:
  const Tensors& seen(const Operands& o) {
    const auto values = [](const TensorView& view) { return view.as<float>(); };
    tensors_.inputs.resize(o.inputs.size());
    std::ranges::transform(o.inputs, tensors_.inputs.begin(), values);
    tensors_.indices = o.indices;
    tensors_.output = values(o.output);
    tensors_.output_gradient = values(o.output_gradient);
    tensors_.input_gradients.resize(o.input_gradients.size());
    std::ranges::transform(o.input_gradients, tensors_.input_gradients.begin(), values);
    tensors_.parameters = o.parameters;
    tensors_.parameter_gradients = o.parameter_gradients;
    tensors_.buffers = o.buffers;
    tensors_.saved = o.saved;
    tensors_.scratch = o.scratch;
    return tensors_;
  }

  const CustomLayer& layer_;
  Needs needs_;
  Tensors tensors_;  // reused between calls
};

}  // namespace

std::unique_ptr<Operation> CustomLayer::compile(const CompileContext& context,
                                                Backend& backend) const {
  if (!backend.runs_on_host())
    throw Error(ErrorCategory::device, fmt::format("layer {} ({})", context.name, kind()),
                "expected a CPU replica for a custom layer", fmt::format("got {}", backend.name()));
  if (backend.precision() != Precision::float32)
    throw Error(ErrorCategory::input, fmt::format("layer {} ({})", context.name, kind()),
                "expected float32 for a custom layer",
                fmt::format("got {}", to_string(backend.precision())));
  Needs needs = this->needs(context);
  needs.adds_input_gradient = false;  // Tensors cannot request it
  needs.input_channels = 0;
  return std::make_unique<CustomOperation>(*this, needs);
}

}  // namespace lockstep::inline v0::model
