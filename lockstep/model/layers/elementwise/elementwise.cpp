#include "lockstep/model/layers/elementwise/elementwise.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "lockstep/model/layers/json_object.h"

namespace lockstep::model {

Shape ReLU::build(BuildContext& context) const { return context.input(); }

Shape Dropout::build(BuildContext& context) const {
  if (!(options_.rate >= 0 && options_.rate < 1))
    context.refuse("expected a rate in [0, 1)", fmt::format("got {}", options_.rate));
  return context.input();
}

std::shared_ptr<const Layer> Dropout::read(JsonObject& object, const DataShape& /*data*/) {
  return std::make_shared<const Dropout>(Options{.rate = object.number("rate", Options{}.rate)});
}

void Dropout::write(nlohmann::json& object) const { object["rate"] = options_.rate; }

Shape Flatten::build(BuildContext& context) const { return {element_count(context.input())}; }

std::unique_ptr<Operation> Flatten::compile(const CompileContext& /*context*/,
                                            Backend& /*backend*/) const {
  return nullptr;
}

Shape Add::build(BuildContext& context) const {
  if (context.inputs().size() < 2)
    context.refuse("expected two inputs or more", fmt::format("got {}", context.inputs().size()));
  for (const Shape& shape : context.inputs())
    if (shape != context.inputs().front())
      context.refuse(
          "expected inputs of one shape",
          fmt::format("got {} and {}", to_string(context.inputs().front()), to_string(shape)));
  return context.inputs().front();
}

Shape Softmax::build(BuildContext& context) const { return context.input(); }

}  // namespace lockstep::model
