#include "lockstep/model/layers/embedding/embedding.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "lockstep/model/layer/json_object.h"

namespace lockstep::inline v0::model {

Shape Embedding::build(BuildContext& context) const {
  Shape output = context.input();
  if (options_.vocabulary <= 0 || options_.dimension <= 0)
    context.refuse("expected a vocabulary and a dimension of at least 1",
                   fmt::format("got {} and {}", options_.vocabulary, options_.dimension));
  context.parameter(
      "embeddings", {options_.vocabulary, options_.dimension},
      context.normal_or(options_.stddev, {.kind = Initializer::Kind::uniform, .value = 0.05f}));
  output.push_back(options_.dimension);
  return output;
}

EmbeddingSpec Embedding::spec(const CompileContext& context) const {
  return {.count = context.batch * element_count(context.inputs.front()),
          .dimension = options_.dimension,
          .training = context.training};
}

std::shared_ptr<const Layer> Embedding::read(JsonObject& object, const DataShape& /*data*/) {
  return std::make_shared<const Embedding>(Options{.vocabulary = object.count("vocabulary"),
                                                   .dimension = object.count("dimension"),
                                                   .stddev = object.number("stddev", 0)});
}

void Embedding::write(nlohmann::json& object) const {
  object["vocabulary"] = options_.vocabulary;
  object["dimension"] = options_.dimension;
  if (options_.stddev > 0) object["stddev"] = options_.stddev;
}

}  // namespace lockstep::inline v0::model
