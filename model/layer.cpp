#include "model/layer.h"

#include <fmt/format.h>

#include <algorithm>

#include "device/error.h"
#include "model/backend.h"

namespace lockstep::model {
namespace {

// Runs a user's layer inside a plan. The network, which the plan's owner holds, keeps the layer alive.
class CustomOperation final : public Operation {
 public:
  CustomOperation(const CustomLayer& layer, const Needs& needs) : layer_(layer), needs_(needs) {}
  Needs needs() const override { return needs_; }
  void forward(const Operands& operands, const PassContext& pass) override { layer_.forward(seen(operands), pass); }
  void backward(const Operands& operands, const PassContext& pass) override { layer_.backward(seen(operands), pass); }

 private:
  const Tensors& seen(const Operands& o) {
    const auto values = [](const TensorView& view) { return view.as<float>(); };
    tensors_.inputs.resize(o.inputs.size());
    std::ranges::transform(o.inputs, tensors_.inputs.begin(), values);
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
  Tensors tensors_;  // kept for its memory
};

}  // namespace

BuildContext::BuildContext(std::string layer, std::string kind, std::vector<Shape> inputs)
    : layer_(std::move(layer)), kind_(std::move(kind)), inputs_(std::move(inputs)) {}

const Shape& BuildContext::input() const {
  if (inputs_.size() != 1) refuse("needed one input", fmt::format("got {}", inputs_.size()));
  return inputs_.front();
}

const Shape& BuildContext::image_input() const {
  const Shape& shape = input();
  if (shape.size() != 3) refuse("needed an input [height, width, channels]", fmt::format("got {}", to_string(shape)));
  return shape;
}

void BuildContext::parameter(std::string_view name, Shape shape, Initializer initializer, bool decay) {
  parameters_.push_back({.name = fmt::format("{}/{}", layer_, name),
                         .shape = std::move(shape),
                         .decay = decay,
                         .initializer = initializer});
}

void BuildContext::buffer(std::string_view name, Shape shape, float initial) {
  buffers_.push_back({.name = fmt::format("{}/{}", layer_, name),
                      .shape = std::move(shape),
                      .decay = false,
                      .initializer = {.kind = Initializer::Kind::constant, .value = initial}});
}

void BuildContext::refuse(std::string_view needed, std::string_view given) const {
  throw Error(ErrorCategory::input, fmt::format("layer {} ({})", layer_, kind_), needed, given);
}

std::unique_ptr<Operation> CustomLayer::compile(const CompileContext& context, Backend& backend) const {
  if (!backend.runs_on_host())
    throw Error(ErrorCategory::device, fmt::format("layer {} ({})", context.name, kind()),
                "a custom layer needs a CPU replica", fmt::format("got {}", backend.name()));
  if (backend.precision() != Precision::float32)
    throw Error(ErrorCategory::input, fmt::format("layer {} ({})", context.name, kind()),
                "a custom layer needs float32", fmt::format("got {}", to_string(backend.precision())));
  return std::make_unique<CustomOperation>(*this, needs(context));
}

}  // namespace lockstep::model
