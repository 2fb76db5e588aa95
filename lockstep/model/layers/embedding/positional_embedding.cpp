#include "lockstep/model/layers/embedding/positional_embedding.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lockstep/base/enum_names.h"
#include "lockstep/model/layer/json_object.h"

namespace lockstep::inline v0::model {
namespace {

constexpr auto kPositionKinds =
    enum_names<PositionalEmbedding::Kind>({{PositionalEmbedding::Kind::learned, "learned"},
                                           {PositionalEmbedding::Kind::constant, "constant"},
                                           {PositionalEmbedding::Kind::sinusoidal, "sinusoidal"}});

}  // namespace

Shape PositionalEmbedding::build(BuildContext& context) const {
  const Shape& input = context.input();
  if (input.size() != 2)
    context.refuse("expected an input [positions, width]", fmt::format("got {}", to_string(input)));
  if (options_.kind == Kind::sinusoidal) return input;
  const std::int64_t used = options_.kind == Kind::constant ? 1 : input[0];
  if (options_.rows != 0 && options_.rows < used)
    context.refuse(fmt::format("expected at least {} rows, one for each position", used),
                   fmt::format("got {}", options_.rows));
  context.parameter(
      "embeddings", {std::max(options_.rows, used), input[1]},
      context.normal_or(options_.stddev, {.kind = Initializer::Kind::uniform, .value = 0.05f}));
  return input;
}

PositionalEmbeddingSpec PositionalEmbedding::spec(const CompileContext& context) const {
  const std::int64_t all = context.batch * element_count(context.output);
  const bool is_constant = options_.kind == Kind::constant;
  const std::int64_t elements = is_constant ? context.output[1] : element_count(context.output);
  return {.samples = all / elements,
          .elements = elements,
          .width = is_constant ? 0 : context.output[1],
          .training = context.training};
}

std::vector<float> sinusoidal_table(std::int64_t positions, std::int64_t width) {
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

std::vector<float> PositionalEmbedding::fixed_table(const CompileContext& context) const {
  if (options_.kind != Kind::sinusoidal) return {};
  return sinusoidal_table(context.positions > 0 ? context.positions : context.output[0],
                          context.output[1]);
}

std::shared_ptr<const Layer> PositionalEmbedding::read(JsonObject& object,
                                                       const DataShape& /*data*/) {
  return std::make_shared<const PositionalEmbedding>(
      Options{.kind = kPositionKinds.parse(object.where(), object.text("kind", "learned")),
              .rows = object.count("rows", 0),
              .stddev = object.number("stddev", 0)});
}

void PositionalEmbedding::write(nlohmann::json& object) const {
  object["kind"] = kPositionKinds.name(options_.kind);
  if (options_.rows > 0) object["rows"] = options_.rows;
  if (options_.stddev > 0) object["stddev"] = options_.stddev;
}

}  // namespace lockstep::inline v0::model
