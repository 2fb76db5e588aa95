#include "lockstep/model/layers/elementwise.h"

#include <fmt/format.h>

#include "lockstep/model/backend.h"

namespace lockstep::model {

Shape ReLU::build(BuildContext& context) const { return context.input(); }

std::unique_ptr<Operation> ReLU::compile(const CompileContext& context, Backend& backend) const {
  return backend.relu(context.batch * element_count(context.output), context.training);
}

Shape Dropout::build(BuildContext& context) const {
  if (!(options_.rate >= 0 && options_.rate < 1))
    context.refuse("expected a rate in [0, 1)", fmt::format("got {}", options_.rate));
  return context.input();
}

std::unique_ptr<Operation> Dropout::compile(const CompileContext& context, Backend& backend) const {
  if (!context.training || options_.rate == 0) return nullptr;
  return backend.dropout({.layer = context.name,
                          .batch = context.batch,
                          .features = element_count(context.output),
                          .rate = options_.rate});
}

Shape Flatten::build(BuildContext& context) const { return {element_count(context.input())}; }

std::unique_ptr<Operation> Flatten::compile(const CompileContext& /*context*/, Backend& /*backend*/) const {
  return nullptr;
}

Shape Add::build(BuildContext& context) const {
  if (context.inputs().size() < 2)
    context.refuse("expected two inputs or more", fmt::format("got {}", context.inputs().size()));
  for (const Shape& shape : context.inputs())
    if (shape != context.inputs().front())
      context.refuse("expected inputs of one shape",
                     fmt::format("got {} and {}", to_string(context.inputs().front()), to_string(shape)));
  return context.inputs().front();
}

std::unique_ptr<Operation> Add::compile(const CompileContext& context, Backend& backend) const {
  return backend.add(context.fused_relu);
}

Shape Softmax::build(BuildContext& context) const { return context.input(); }

std::unique_ptr<Operation> Softmax::compile(const CompileContext& context, Backend& backend) const {
  const std::int64_t width = context.output.back();
  return backend.softmax(context.batch * element_count(context.output) / width, width, context.training);
}

}  // namespace lockstep::model
