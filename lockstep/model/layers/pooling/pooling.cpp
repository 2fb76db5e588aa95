#include "lockstep/model/layers/pooling/pooling.h"

#include <nlohmann/json.hpp>

#include "lockstep/model/layers/json_object.h"

namespace lockstep::model {
namespace {

Shape build_pool(const PoolOptions& options, BuildContext& context) {
  const Shape& input = context.image_input();
  const WindowGeometry window = window_geometry(
      context, input, options.pool, options.strides.value_or(options.pool), options.padding);
  return {window.output_height, window.output_width, window.channels};
}

Pool2DSpec spec_of(Pool2DSpec::Kind kind, const PoolOptions& options,
                   const CompileContext& context) {
  return {.kind = kind,
          .batch = context.batch,
          .window = window_geometry(context.inputs.front(), options.pool,
                                    options.strides.value_or(options.pool), options.padding),
          .training = context.training};
}

PoolOptions read_options(JsonObject& object) {
  PoolOptions options{.pool = object.extent("pool", 2),
                      .strides = std::nullopt,
                      .padding = object.padding("padding")};
  if (object.has("strides")) options.strides = object.extent("strides");
  return options;
}

void write_options(const PoolOptions& options, nlohmann::json& object) {
  write_extent(object, "pool", options.pool);
  if (options.strides) write_extent(object, "strides", *options.strides);
  object["padding"] = to_string(options.padding);
}

}  // namespace

Shape MaxPool2D::build(BuildContext& context) const { return build_pool(options_, context); }

std::shared_ptr<const Layer> MaxPool2D::read(JsonObject& object, const DataShape& /*data*/) {
  return std::make_shared<const MaxPool2D>(read_options(object));
}

void MaxPool2D::write(nlohmann::json& object) const { write_options(options_, object); }

Pool2DSpec MaxPool2D::spec(const CompileContext& context) const {
  return spec_of(Pool2DSpec::Kind::max, options_, context);
}

Shape AveragePool2D::build(BuildContext& context) const { return build_pool(options_, context); }

std::shared_ptr<const Layer> AveragePool2D::read(JsonObject& object, const DataShape& /*data*/) {
  return std::make_shared<const AveragePool2D>(read_options(object));
}

void AveragePool2D::write(nlohmann::json& object) const { write_options(options_, object); }

Pool2DSpec AveragePool2D::spec(const CompileContext& context) const {
  return spec_of(Pool2DSpec::Kind::average, options_, context);
}

Shape GlobalAveragePooling2D::build(BuildContext& context) const {
  return {context.image_input()[2]};
}

Pool2DSpec GlobalAveragePooling2D::spec(const CompileContext& context) const {
  const Shape& input = context.inputs.front();
  return spec_of(Pool2DSpec::Kind::average, {.pool = {input[0], input[1]}, .strides = 1}, context);
}

}  // namespace lockstep::model
