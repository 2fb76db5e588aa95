#include "lockstep/model/layers/pooling/pooling.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "lockstep/model/layer/json_object.h"

namespace lockstep::inline v0::model {
namespace {

Pool2DSpec spec_of(Pool2DSpec::Kind kind, const PoolOptions& options,
                   const CompileContext& context) {
  return {.kind = kind,
          .batch = context.batch,
          .window = window_geometry(context.inputs.front(), options.pool,
                                    options.strides.value_or(options.pool), options.padding),
          .training = context.training};
}

Pool2DSpec global_spec(Pool2DSpec::Kind kind, const CompileContext& context) {
  const Shape& input = context.inputs.front();
  return spec_of(kind, {.pool = {input[0], input[1]}, .strides = 1}, context);
}

PoolOptions read_options(JsonObject& object) {
  PoolOptions options{.pool = object.extent("pool", 2),
                      .strides = std::nullopt,
                      .padding = object.padding("padding")};
  if (object.has("strides")) options.strides = object.extent("strides");
  return options;
}

}  // namespace

void WindowPool2D::write(nlohmann::json& object) const {
  write_extent(object, "pool", options_.pool);
  if (options_.strides) write_extent(object, "strides", *options_.strides);
  object["padding"] = to_string(options_.padding);
}

Shape WindowPool2D::build(BuildContext& context) const {
  const Shape& input = context.image_input();
  const WindowGeometry window = window_geometry(
      context, input, options_.pool, options_.strides.value_or(options_.pool), options_.padding);
  return {window.output_height, window.output_width, window.channels};
}

std::shared_ptr<const Layer> MaxPool2D::read(JsonObject& object, const DataShape& /*data*/) {
  return std::make_shared<const MaxPool2D>(read_options(object));
}

Pool2DSpec MaxPool2D::spec(const CompileContext& context) const {
  return spec_of(Pool2DSpec::Kind::max, options(), context);
}

std::shared_ptr<const Layer> AveragePool2D::read(JsonObject& object, const DataShape& /*data*/) {
  return std::make_shared<const AveragePool2D>(read_options(object));
}

Pool2DSpec AveragePool2D::spec(const CompileContext& context) const {
  return spec_of(Pool2DSpec::Kind::average, options(), context);
}

Pool2DSpec GlobalMaxPooling2D::spec(const CompileContext& context) const {
  return global_spec(Pool2DSpec::Kind::max, context);
}

Pool2DSpec GlobalAveragePooling2D::spec(const CompileContext& context) const {
  return global_spec(Pool2DSpec::Kind::average, context);
}

Shape UpSampling2D::build(BuildContext& context) const {
  const Shape& input = context.image_input();
  const auto [height, width] = options_.size;
  if (height <= 0 || width <= 0)
    context.refuse("expected a positive size", fmt::format("got {}x{}", height, width));
  return context.within_limits({height * input[0], width * input[1], input[2]});
}

WindowGeometry reversed_up_sampling(const Shape& output, Extent2D size) {
  return window_geometry(output, size, size, Padding::valid);
}

std::shared_ptr<const Layer> UpSampling2D::read(JsonObject& object, const DataShape& /*data*/) {
  return std::make_shared<const UpSampling2D>(
      Options{.size = object.extent("size", Options{}.size),
              .interpolation = object.interpolation("interpolation")});
}

void UpSampling2D::write(nlohmann::json& object) const {
  write_extent(object, "size", options_.size);
  object["interpolation"] = to_string(options_.interpolation);
}

}  // namespace lockstep::inline v0::model
