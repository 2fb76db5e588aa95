#include "lockstep/model/layers/pooling.h"

#include "lockstep/model/backend.h"

namespace lockstep::model {
namespace {

WindowGeometry geometry(const PoolOptions& options, const Shape& input) {
  return window_geometry(input, options.pool, options.strides.value_or(options.pool), options.padding);
}

Shape build_pool(const PoolOptions& options, BuildContext& context) {
  const Shape& input = context.image_input();
  const WindowGeometry window =
      window_geometry(context, input, options.pool, options.strides.value_or(options.pool), options.padding);
  return {window.output_height, window.output_width, window.channels};
}

std::unique_ptr<Operation> compile_pool(Pool2DSpec::Kind kind, const WindowGeometry& window,
                                        const CompileContext& context, Backend& backend) {
  return backend.pool_2d({.kind = kind, .batch = context.batch, .window = window, .training = context.training});
}

}  // namespace

Shape MaxPool2D::build(BuildContext& context) const { return build_pool(options_, context); }

std::unique_ptr<Operation> MaxPool2D::compile(const CompileContext& context, Backend& backend) const {
  return compile_pool(Pool2DSpec::Kind::max, geometry(options_, context.inputs.front()), context, backend);
}

Shape AveragePool2D::build(BuildContext& context) const { return build_pool(options_, context); }

std::unique_ptr<Operation> AveragePool2D::compile(const CompileContext& context, Backend& backend) const {
  return compile_pool(Pool2DSpec::Kind::average, geometry(options_, context.inputs.front()), context, backend);
}

Shape GlobalAveragePooling2D::build(BuildContext& context) const { return {context.image_input()[2]}; }

std::unique_ptr<Operation> GlobalAveragePooling2D::compile(const CompileContext& context, Backend& backend) const {
  const Shape& input = context.inputs.front();
  return compile_pool(Pool2DSpec::Kind::average, window_geometry(input, {input[0], input[1]}, 1, Padding::valid),
                      context, backend);
}

}  // namespace lockstep::model
