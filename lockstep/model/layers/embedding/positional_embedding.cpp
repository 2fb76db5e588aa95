#include "lockstep/model/layers/embedding/positional_embedding.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "lockstep/base/enum_names.h"
#include "lockstep/model/layers/json_object.h"

namespace lockstep::model {
namespace {

constexpr auto kPositionKinds =
    enum_names<PositionalEmbedding::Kind>({{PositionalEmbedding::Kind::learned, "learned"},
                                           {PositionalEmbedding::Kind::sinusoidal, "sinusoidal"}});

}  // namespace

Shape PositionalEmbedding::build(BuildContext& context) const {
  const Shape& input = context.input();
  if (input.size() != 2)
    context.refuse("expected an input [positions, width]", fmt::format("got {}", to_string(input)));
  if (options_.kind == Kind::learned)
    context.parameter(
        "embeddings", input,
        context.normal_or(options_.stddev, {.kind = Initializer::Kind::uniform, .value = 0.05f}));
  return input;
}

PositionalEmbeddingSpec PositionalEmbedding::spec(const CompileContext& context) const {
  return {.samples = context.batch,
          .elements = element_count(context.output),
          .width = context.output[1],
          .training = context.training};
}

std::vector<float> PositionalEmbedding::fixed_table(const CompileContext& context) const {
  if (options_.kind == Kind::learned) return {};
  const std::int64_t positions = context.positions > 0 ? context.positions : context.output[0];
  const std::int64_t width = context.output[1];
  std::vector<float> table;
  table.reserve(static_cast<std::size_t>(positions * width));
  for (std::int64_t position = 0; position < positions; ++position)
    for (std::int64_t i = 0; i < width; ++i) {
      const double exponent = static_cast<double>(i - i % 2) / static_cast<double>(width);
      const double angle = static_cast<double>(position) / std::pow(10000.0, exponent);
      table.push_back(static_cast<float>(i % 2 == 0 ? std::sin(angle) : std::cos(angle)));
    }
  return table;
}

std::shared_ptr<const Layer> PositionalEmbedding::read(JsonObject& object,
                                                       const DataShape& /*data*/) {
  return std::make_shared<const PositionalEmbedding>(
      Options{.kind = kPositionKinds.parse(object.where(), object.text("kind", "learned")),
              .stddev = object.number("stddev", 0)});
}

void PositionalEmbedding::write(nlohmann::json& object) const {
  object["kind"] = kPositionKinds.name(options_.kind);
  if (options_.stddev > 0) object["stddev"] = options_.stddev;
}

}  // namespace lockstep::model
