#include "lockstep/model/layers/conv_2d/derived.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/model/layer/json_object.h"

namespace lockstep::inline v0::model {
namespace {

// [T, C] as an image of one row.
Shape one_row(const Shape& shape) { return {1, shape[0], shape[1]}; }

// The extent of the images from which a convolution makes `windows`.
std::int64_t transposed_extent(std::int64_t windows, std::int64_t kernel, std::int64_t stride,
                               Padding padding) {
  if (padding == Padding::symmetric) return (windows - 1) * stride + kernel - kernel / 2 * 2;
  const std::int64_t rest =
      padding == Padding::valid ? std::max<std::int64_t>(kernel - stride, 0) : 0;
  return windows * stride + rest;
}

}  // namespace

std::unique_ptr<Operation> DerivedConvolution::compile_cpu(const CompileContext& context,
                                                           cpu::Context& cpu) const {
  return convolution(context.inputs.front()).compile_cpu(image_context(context), cpu);
}

std::unique_ptr<Operation> DerivedConvolution::compile_gpu(const CompileContext& context,
                                                           cuda::Context& gpu) const {
  return convolution(context.inputs.front()).compile_gpu(image_context(context), gpu);
}

std::int64_t DerivedConvolution::flop(const CompileContext& context) const {
  return convolution(context.inputs.front()).flop(image_context(context));
}

Shape Conv1D::build(BuildContext& context) const {
  const Shape& input = context.input();
  if (input.size() != 2)
    context.refuse("expected an input [steps, channels]", fmt::format("got {}", to_string(input)));
  const Shape output = convolution(input).build_on(context, one_row(input), true);
  return {output[1], output[2]};
}

Conv2D Conv1D::convolution(const Shape& /*input*/) const {
  return Conv2D({.filters = options_.filters,
                 .kernel = {1, options_.kernel},
                 .strides = {1, options_.strides},
                 .dilation = {1, options_.dilation},
                 .padding = options_.padding,
                 .groups = options_.groups,
                 .use_bias = options_.use_bias,
                 .initializer = options_.initializer});
}

CompileContext Conv1D::image_context(const CompileContext& context) const {
  CompileContext images = context;
  images.inputs = {one_row(context.inputs.front())};
  images.output = one_row(context.output);
  images.reads_network_input = false;  // additional channels are for images
  return images;
}

std::shared_ptr<const Layer> Conv1D::read(JsonObject& object, const DataShape& /*data*/) {
  return std::make_shared<const Conv1D>(Options{.filters = object.count("filters"),
                                                .kernel = object.count("kernel"),
                                                .strides = object.count("strides", 1),
                                                .dilation = object.count("dilation", 1),
                                                .padding = object.padding("padding"),
                                                .groups = object.count("groups", 1),
                                                .use_bias = object.flag("use_bias", true),
                                                .initializer = object.initializer("initializer")});
}

void Conv1D::write(nlohmann::json& object) const {
  object["filters"] = options_.filters;
  object["kernel"] = options_.kernel;
  object["strides"] = options_.strides;
  object["dilation"] = options_.dilation;
  object["padding"] = to_string(options_.padding);
  object["groups"] = options_.groups;
  object["use_bias"] = options_.use_bias;
  object["initializer"] = to_string(options_.initializer);
}

Shape DepthwiseConv2D::build(BuildContext& context) const {
  return context.within_limits(convolution(context.image_input()).build(context));
}

Conv2D DepthwiseConv2D::convolution(const Shape& input) const {
  return Conv2D({.filters = input[2] * options_.depth_multiplier,
                 .kernel = options_.kernel,
                 .strides = options_.strides,
                 .dilation = options_.dilation,
                 .padding = options_.padding,
                 .groups = input[2],
                 .use_bias = options_.use_bias,
                 .initializer = options_.initializer});
}

std::shared_ptr<const Layer> DepthwiseConv2D::read(JsonObject& object, const DataShape& /*data*/) {
  return std::make_shared<const DepthwiseConv2D>(
      Options{.kernel = object.extent("kernel"),
              .strides = object.extent("strides", 1),
              .dilation = object.extent("dilation", 1),
              .padding = object.padding("padding"),
              .depth_multiplier = object.count("depth_multiplier", 1),
              .use_bias = object.flag("use_bias", true),
              .initializer = object.initializer("initializer")});
}

void DepthwiseConv2D::write(nlohmann::json& object) const {
  write_extent(object, "kernel", options_.kernel);
  write_extent(object, "strides", options_.strides);
  write_extent(object, "dilation", options_.dilation);
  object["padding"] = to_string(options_.padding);
  object["depth_multiplier"] = options_.depth_multiplier;
  object["use_bias"] = options_.use_bias;
  object["initializer"] = to_string(options_.initializer);
}

Shape transposed_shape(const Shape& input, const Conv2DTranspose::Options& options) {
  const auto& [filters, kernel, strides, padding, use_bias, initializer] = options;
  return {transposed_extent(input[0], kernel.height, strides.height, padding),
          transposed_extent(input[1], kernel.width, strides.width, padding), filters};
}

Shape Conv2DTranspose::build(BuildContext& context) const {
  const Shape& input = context.image_input();
  const auto& [filters, kernel, strides, padding, use_bias, initializer] = options_;
  if (filters <= 0) context.refuse("expected at least one filter", fmt::format("got {}", filters));
  check_window(context, kernel, strides);
  Shape output = transposed_shape(input, options_);
  if (std::min(output[0], output[1]) <= 0)
    context.refuse("expected an output of at least 1x1", fmt::format("got {}", to_string(output)));
  const std::int64_t receptive = kernel.height * kernel.width;
  context.parameter(
      "kernel", {input[2], kernel.height, kernel.width, filters},
      {.kind = initializer, .fan_in = receptive * filters, .fan_out = receptive * input[2]});
  if (use_bias) context.parameter("bias", {filters}, {}, false);
  return context.within_limits(std::move(output));
}

Conv2DSpec Conv2DTranspose::spec(const CompileContext& context) const {
  return {.batch = context.batch,
          .window =
              window_geometry(context.output, options_.kernel, options_.strides, options_.padding),
          .filters = context.inputs.front()[2],
          .bias = options_.use_bias,
          .training = context.has_backward(),
          .input_gradient = context.input_gradients};
}

std::int64_t Conv2DTranspose::flop(const CompileContext& context) const {
  const WindowGeometry w = spec(context).window;
  return 2 * context.batch * element_count(context.inputs.front()) * w.kernel_height *
         w.kernel_width * w.channels;
}

std::shared_ptr<const Layer> Conv2DTranspose::read(JsonObject& object, const DataShape& /*data*/) {
  return std::make_shared<const Conv2DTranspose>(
      Options{.filters = object.count("filters"),
              .kernel = object.extent("kernel"),
              .strides = object.extent("strides", 1),
              .padding = object.padding("padding"),
              .use_bias = object.flag("use_bias", true),
              .initializer = object.initializer("initializer")});
}

void Conv2DTranspose::write(nlohmann::json& object) const {
  object["filters"] = options_.filters;
  write_extent(object, "kernel", options_.kernel);
  write_extent(object, "strides", options_.strides);
  object["padding"] = to_string(options_.padding);
  object["use_bias"] = options_.use_bias;
  object["initializer"] = to_string(options_.initializer);
}

}  // namespace lockstep::inline v0::model
