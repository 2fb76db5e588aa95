#include "lockstep/model/layers/conv_2d/conv_2d.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/model/layer/json_object.h"

namespace lockstep::inline v0::model {

Shape Conv2D::build(BuildContext& context) const {
  return build_on(context, context.image_input(), false);
}

Shape Conv2D::build_on(BuildContext& context, const Shape& input, bool is_row) const {
  const auto& [filters, kernel, strides, dilation, padding, groups, use_bias, initializer] =
      options_;
  if (filters <= 0) context.refuse("expected at least one filter", fmt::format("got {}", filters));
  if (groups <= 0 || input[2] % groups != 0 || filters % groups != 0)
    context.refuse(
        "expected groups that divide channels and filters",
        fmt::format("got {} groups, {} channels, {} filters", groups, input[2], filters));
  const WindowGeometry window = window_geometry(context, input, kernel, strides, padding, dilation);
  const std::int64_t receptive = kernel.height * kernel.width;
  Shape kernel_shape = {filters, kernel.height, kernel.width, input[2] / groups};
  if (is_row) kernel_shape.erase(kernel_shape.begin() + 1);
  context.parameter("kernel", std::move(kernel_shape),
                    {.kind = initializer,
                     .fan_in = receptive * input[2] / groups,
                     .fan_out = receptive * filters / groups});
  if (use_bias) context.parameter("bias", {filters}, {}, false);
  return {window.output_height, window.output_width, filters};
}

Conv2DSpec Conv2D::spec(const CompileContext& context) const {
  return {.batch = context.batch,
          .window = window_geometry(context.inputs.front(), options_.kernel, options_.strides,
                                    options_.padding, options_.dilation),
          .filters = options_.filters,
          .groups = options_.groups,
          .bias = options_.use_bias,
          .relu = context.fused_relu,
          .training = context.has_backward(),
          .input_gradient = context.input_gradients,
          .adds_input_gradient = context.adds_input_gradient,
          .reads_network_input = context.reads_network_input,
          .statistics = context.fused_statistics};
}

std::int64_t Conv2D::flop(const CompileContext& context) const {
  const WindowGeometry w = spec(context).window;
  const std::int64_t flop_per_value =
      2 * w.kernel_height * w.kernel_width * w.channels / options_.groups;
  return context.batch * w.output_height * w.output_width * options_.filters * flop_per_value;
}

std::shared_ptr<const Layer> Conv2D::read(JsonObject& object, const DataShape& /*data*/) {
  return std::make_shared<const Conv2D>(Options{.filters = object.count("filters"),
                                                .kernel = object.extent("kernel"),
                                                .strides = object.extent("strides", 1),
                                                .dilation = object.extent("dilation", 1),
                                                .padding = object.padding("padding"),
                                                .groups = object.count("groups", 1),
                                                .use_bias = object.flag("use_bias", true),
                                                .initializer = object.initializer("initializer")});
}

void Conv2D::write(nlohmann::json& object) const {
  object["filters"] = options_.filters;
  write_extent(object, "kernel", options_.kernel);
  write_extent(object, "strides", options_.strides);
  write_extent(object, "dilation", options_.dilation);
  object["padding"] = to_string(options_.padding);
  object["groups"] = options_.groups;
  object["use_bias"] = options_.use_bias;
  object["initializer"] = to_string(options_.initializer);
}

}  // namespace lockstep::inline v0::model
