#include "tests/bench/fused_patterns.h"

#include <utility>

#include "lockstep/model/layers/conv_2d/graph_convolution.h"

namespace lockstep::inline v0::bench {

using model::cuda::ConvolutionPass;
using model::cuda::TensorSizes;

std::string_view to_string(Pattern pattern) {
  switch (pattern) {
    case Pattern::statistics:
      return "convolution, sums";
    case Pattern::normalized_statistics:
      return "scale, ReLU, convolution, sums";
    case Pattern::normalized_filter:
      return "scale, ReLU, kernel gradient";
    case Pattern::data_sums:
      break;
  }
  return "input gradient, ReLU gradient, sums";
}

PatternGraph::PatternGraph(cudnnHandle_t handle, Pattern pattern, const model::Conv2DSpec& spec)
    : whole_(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) {
  const model::WindowGeometry& w = spec.window;
  image_ = {spec.batch, w.channels, w.height, w.width};
  const Descriptor& window = parts_.emplace_back(model::cuda::describe_window(w));
  if (pattern == Pattern::data_sums) {
    add_data_sums(spec, window);
  } else {
    const Descriptor& image = tensor(CUDNN_DATA_HALF, image_);
    const Descriptor& input =
        pattern == Pattern::statistics ? image : normalized(image, w.channels);
    const Descriptor& kernel = tensor(
        CUDNN_DATA_HALF, {spec.filters, w.channels / spec.groups, w.kernel_height, w.kernel_width});
    const Descriptor& output =
        tensor(CUDNN_DATA_HALF, {spec.batch, spec.filters, w.output_height, w.output_width});
    const bool forward = pattern != Pattern::normalized_filter;
    add(model::cuda::describe_convolution(
        forward ? ConvolutionPass::forward : ConvolutionPass::backward_filter, false, window, input,
        kernel, output));
    if (forward) {
      const TensorSizes channels{1, spec.filters, 1, 1};
      const Descriptor& sums = tensor(CUDNN_DATA_FLOAT, channels);
      const Descriptor& squares = tensor(CUDNN_DATA_FLOAT, channels);
      add(model::cuda::describe_sums(output, sums, squares));
    }
  }
  whole_.refer_to(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations_);
  if (handle != nullptr) whole_.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle);
  whole_.finalize();
}

const PatternGraph::Descriptor& PatternGraph::tensor(cudnnDataType_t type, const TensorSizes& sizes,
                                                     bool is_virtual) {
  const std::int64_t id = ++last_id_;
  if (!is_virtual) {
    const auto [n, c, h, w] = sizes;
    ids_.push_back(id);
    bytes_.push_back(static_cast<std::size_t>(n * c * h * w) * (type == CUDNN_DATA_FLOAT ? 4 : 2));
  }
  return parts_.emplace_back(model::cuda::describe_tensor(id, type, sizes, is_virtual));
}

const PatternGraph::Descriptor& PatternGraph::add(Descriptor operation) {
  const Descriptor& added = parts_.emplace_back(std::move(operation));
  operations_.push_back(&added);
  return added;
}

const PatternGraph::Descriptor& PatternGraph::pointwise(cudnnPointwiseMode_t mode) {
  Descriptor& function = parts_.emplace_back(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  function.set(CUDNN_ATTR_POINTWISE_MODE, mode)
      .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT)
      .finalize();
  return function;
}

// Combines two tensors, the second with one value per channel, into a virtual tensor.
const PatternGraph::Descriptor& PatternGraph::combined(cudnnPointwiseMode_t mode,
                                                       const Descriptor& x, const Descriptor& b) {
  const Descriptor& result = tensor(CUDNN_DATA_HALF, image_, true);
  Descriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.refer_to(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise(mode))
      .refer_to(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x)
      .refer_to(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b)
      .refer_to(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, result)
      .finalize();
  add(std::move(operation));
  return result;
}

const PatternGraph::Descriptor& PatternGraph::normalized(const Descriptor& image,
                                                         std::int64_t channels) {
  const TensorSizes of_channels{1, channels, 1, 1};
  const Descriptor& scaled =
      combined(CUDNN_POINTWISE_MUL, image, tensor(CUDNN_DATA_HALF, of_channels));
  const Descriptor& shifted =
      combined(CUDNN_POINTWISE_ADD, scaled, tensor(CUDNN_DATA_HALF, of_channels));
  const Descriptor& result = tensor(CUDNN_DATA_HALF, image_, true);
  Descriptor relu(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  relu.refer_to(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise(CUDNN_POINTWISE_RELU_FWD))
      .refer_to(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, shifted)
      .refer_to(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, result)
      .finalize();
  add(std::move(relu));
  return result;
}

// The sign for the ReLU is recomputed from the input of the normalization.
void PatternGraph::add_data_sums(const model::Conv2DSpec& spec, const Descriptor& window) {
  const model::WindowGeometry& w = spec.window;
  const TensorSizes channels{1, w.channels, 1, 1};
  const auto of_channels = [&]() -> const Descriptor& {
    return tensor(CUDNN_DATA_FLOAT, channels);
  };
  const Descriptor& gradient = tensor(CUDNN_DATA_HALF, image_, true);
  const Descriptor& kernel = tensor(
      CUDNN_DATA_HALF, {spec.filters, w.channels / spec.groups, w.kernel_height, w.kernel_width});
  const Descriptor& output =
      tensor(CUDNN_DATA_HALF, {spec.batch, spec.filters, w.output_height, w.output_width});
  add(model::cuda::describe_convolution(ConvolutionPass::backward_data, false, window, gradient,
                                        kernel, output));

  const Descriptor& image = tensor(CUDNN_DATA_HALF, image_);
  const Descriptor& mean = of_channels();
  const Descriptor& inverse = of_channels();
  const Descriptor& gamma = of_channels();
  const Descriptor& beta = of_channels();
  const Descriptor& centered = combined(CUDNN_POINTWISE_SUB, image, mean);
  const Descriptor& unit = combined(CUDNN_POINTWISE_MUL, centered, inverse);
  const Descriptor& scaled = combined(CUDNN_POINTWISE_MUL, unit, gamma);
  const Descriptor& shifted = combined(CUDNN_POINTWISE_ADD, scaled, beta);
  const Descriptor& passed = tensor(CUDNN_DATA_HALF, image_);
  Descriptor relu(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  relu.refer_to(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise(CUDNN_POINTWISE_RELU_BWD))
      .refer_to(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, shifted)
      .refer_to(CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, gradient)
      .refer_to(CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, passed)
      .finalize();
  add(std::move(relu));

  Descriptor sums(CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR);
  sums.set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MATH_PREC, CUDNN_DATA_FLOAT)
      .refer_to(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC, mean)
      .refer_to(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC, inverse)
      .refer_to(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC, gamma)
      .refer_to(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC, image)
      .refer_to(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC, passed)
      .refer_to(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC, of_channels())
      .refer_to(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC, of_channels())
      .refer_to(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC, of_channels())
      .refer_to(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC, of_channels())
      .refer_to(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS, of_channels())
      .finalize();
  add(std::move(sums));
}

}  // namespace lockstep::inline v0::bench
