#include "lockstep/model/layers/conv_2d/graph_convolution.h"

#include <array>
#include <span>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::model::cuda {
namespace {

// Tensor ids of the graph; the sums are the last.
enum Id : std::int64_t { kInput = 1, kKernel, kOutput, kSums, kSquares };
constexpr std::array<std::int64_t, 5> kIds{kInput, kKernel, kOutput, kSums, kSquares};

// The attribute names of the same things in the three operations.
struct OperationNames {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t window, input, kernel, output, alpha, beta;
};
constexpr OperationNames kForward{
    CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
};
constexpr OperationNames kBackwardData{
    CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
};
constexpr OperationNames kBackwardFilter{
    CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
};

const OperationNames& names_of(ConvolutionPass pass) {
  if (pass == ConvolutionPass::forward) return kForward;
  return pass == ConvolutionPass::backward_data ? kBackwardData : kBackwardFilter;
}

}  // namespace

GraphDescriptor describe_window(const WindowGeometry& w) {
  const std::array<std::int64_t, 2> strides{w.stride_height, w.stride_width};
  const std::array<std::int64_t, 2> before{w.pad_top, w.pad_left};
  const std::array<std::int64_t, 2> after{w.pad_bottom, w.pad_right};
  const std::array<std::int64_t, 2> dilations{w.dilation_height, w.dilation_width};
  constexpr std::int64_t kDimensions = 2;
  GraphDescriptor window(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  window.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT)
      .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION)
      .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, kDimensions)
      .set_all<std::int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, strides)
      .set_all<std::int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, before)
      .set_all<std::int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, after)
      .set_all<std::int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS, dilations)
      .finalize();
  return window;
}

GraphDescriptor describe_convolution(ConvolutionPass pass, bool adds, const GraphDescriptor& window,
                                     const GraphDescriptor& input, const GraphDescriptor& kernel,
                                     const GraphDescriptor& output) {
  constexpr float kOne = 1;
  const float beta = adds ? 1 : 0;
  const OperationNames& names = names_of(pass);
  GraphDescriptor convolution(names.operation);
  convolution.refer_to(names.window, window)
      .refer_to(names.input, input)
      .refer_to(names.kernel, kernel)
      .refer_to(names.output, output)
      .set(names.alpha, kOne)
      .set(names.beta, beta)
      .finalize();
  return convolution;
}

GraphDescriptor describe_sums(const GraphDescriptor& values, const GraphDescriptor& sums,
                              const GraphDescriptor& squares) {
  GraphDescriptor statistics(CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
  statistics.set(CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_GENSTATS_SUM_SQSUM)
      .set(CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_DATA_FLOAT)
      .refer_to(CUDNN_ATTR_OPERATION_GENSTATS_XDESC, values)
      .refer_to(CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, sums)
      .refer_to(CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, squares)
      .finalize();
  return statistics;
}

ConvolutionGraph::ConvolutionGraph(cudnnHandle_t handle, cudnnDataType_t type,
                                   const Conv2DSpec& spec, ConvolutionPass pass, bool sums)
    : input_(describe_tensor(
          kInput, type, {spec.batch, spec.window.channels, spec.window.height, spec.window.width})),
      kernel_(describe_tensor(kKernel, type,
                              {spec.filters, spec.window.channels / spec.groups,
                               spec.window.kernel_height, spec.window.kernel_width})),
      output_(describe_tensor(
          kOutput, type,
          {spec.batch, spec.filters, spec.window.output_height, spec.window.output_width})),
      window_(describe_window(spec.window)),
      convolution_(describe_convolution(
          pass, pass == ConvolutionPass::backward_data && spec.adds_input_gradient, window_, input_,
          kernel_, output_)),
      whole_(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) {
  std::vector<const GraphDescriptor*> operations{&convolution_};
  if (sums) {
    LOCKSTEP_CHECK(pass == ConvolutionPass::forward && !spec.bias && !spec.relu);
    sums_ = describe_tensor(kSums, CUDNN_DATA_FLOAT, {1, spec.filters, 1, 1});
    squares_ = describe_tensor(kSquares, CUDNN_DATA_FLOAT, {1, spec.filters, 1, 1});
    statistics_ = describe_sums(output_, *sums_, *squares_);
    operations.push_back(&*statistics_);
  }
  whole_.refer_to(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations);
  if (handle != nullptr) whole_.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle);
  whole_.finalize();
}

GraphConvolution::GraphConvolution(Context& context, const Conv2DSpec& spec, ConvolutionPass pass,
                                   bool sums)
    : context_(context),
      sums_(sums),
      graph_(context.cudnn(), context.cudnn_type(), spec, pass, sums),
      configurations_(usable_configurations(graph_.whole(), requirements(context.options()))) {}

std::vector<ConvolutionAlgorithm> GraphConvolution::proposals() {
  std::vector<ConvolutionAlgorithm> all;
  for (std::size_t i = 0; i < configurations_.size(); ++i)
    all.push_back({.number = static_cast<int>(i), .math = kGraphMath});
  return all;
}

bool GraphConvolution::select(const ConvolutionAlgorithm& algorithm) {
  const auto number = static_cast<std::size_t>(algorithm.number);
  if (algorithm.math != kGraphMath || number >= configurations_.size()) return false;
  plan_ = GraphPlan::create(context_.cudnn(), configurations_[number]);
  return plan_ && plan_->workspace_bytes() <= kMaxWorkspace;
}

void GraphConvolution::run(const ConvolutionArrays& arrays, void* workspace) {
  const std::array<void*, kIds.size()> memory{arrays.input, arrays.kernel, arrays.output,
                                              arrays.sums.values, arrays.sums.squares};
  const std::size_t count = sums_ ? kIds.size() : kIds.size() - 2;
  plan_->run(context_.cudnn(), std::span(kIds).first(count),
             std::span<void* const>(memory).first(count), workspace);
}

}  // namespace lockstep::inline v0::model::cuda
