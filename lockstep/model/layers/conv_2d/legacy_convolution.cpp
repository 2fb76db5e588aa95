#include "lockstep/model/layers/conv_2d/legacy_convolution.h"

#include <fmt/format.h>

#include <array>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::model::cuda {
namespace {

template <typename Handle, auto create, auto destroy>
Owned<Handle, destroy> make(std::string_view what) {
  Handle handle = nullptr;
  check(create(&handle), what);
  return Owned<Handle, destroy>(handle);
}

TensorDescriptor describe_image(cudnnDataType_t type, std::int64_t batch, std::int64_t height,
                                std::int64_t width, std::int64_t channels) {
  auto descriptor =
      make<cudnnTensorDescriptor_t, cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor>(
          "an image");
  check(cudnnSetTensor4dDescriptor(descriptor.get(), CUDNN_TENSOR_NHWC, type,
                                   static_cast<int>(batch), static_cast<int>(channels),
                                   static_cast<int>(height), static_cast<int>(width)),
        fmt::format("an array of images [{}, {}, {}, {}]", batch, height, width, channels));
  return descriptor;
}

constexpr int kMaxProposals = 16;

// The usable results for this pass, in cuDNN's order. The result types of all passes have the same
// fields.
template <typename Results>
std::vector<ConvolutionAlgorithm> working(const Results& results, int count, bool deterministic) {
  std::vector<ConvolutionAlgorithm> algorithms;
  for (int i = 0; i < count; ++i) {
    const auto& result = results[i];
    if (result.status != CUDNN_STATUS_SUCCESS || result.memory > kMaxWorkspace) continue;
    if (deterministic && result.determinism != CUDNN_DETERMINISTIC) continue;
    algorithms.push_back(
        {static_cast<int>(result.algo), static_cast<int>(result.mathType), result.memory});
  }
  return algorithms;
}

}  // namespace

LegacyConvolution::LegacyConvolution(Context& context, const Conv2DSpec& spec, ConvolutionPass pass)
    : context_(context),
      spec_(spec),
      pass_(pass),
      kernel_(
          make<cudnnFilterDescriptor_t, cudnnCreateFilterDescriptor, cudnnDestroyFilterDescriptor>(
              "a filter")),
      convolution_(make<cudnnConvolutionDescriptor_t, cudnnCreateConvolutionDescriptor,
                        cudnnDestroyConvolutionDescriptor>("a convolution")) {
  const WindowGeometry& w = spec.window;
  LOCKSTEP_CHECK(w.pad_top == w.pad_bottom && w.pad_left == w.pad_right);
  const cudnnDataType_t type = context.cudnn_type();
  input_ = describe_image(type, spec.batch, w.height, w.width, w.channels);
  output_ = describe_image(type, spec.batch, w.output_height, w.output_width, spec.filters);
  check(cudnnSetFilter4dDescriptor(
            kernel_.get(), type, CUDNN_TENSOR_NHWC, static_cast<int>(spec.filters),
            static_cast<int>(w.channels / spec.groups), static_cast<int>(w.kernel_height),
            static_cast<int>(w.kernel_width)),
        describe(spec));
  check(cudnnSetConvolution2dDescriptor(
            convolution_.get(), static_cast<int>(w.pad_top), static_cast<int>(w.pad_left),
            static_cast<int>(w.stride_height), static_cast<int>(w.stride_width),
            static_cast<int>(w.dilation_height), static_cast<int>(w.dilation_width),
            CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
        describe(spec));
  check(cudnnSetConvolutionGroupCount(convolution_.get(), static_cast<int>(spec.groups)),
        describe(spec));
}

bool LegacyConvolution::is_exact() const {
  return context_.options().precision == Precision::float32 && !context_.options().tf32;
}

void LegacyConvolution::set_mathematics(cudnnMathType_t type) {
  // Any other type may round float32 to 10 bits.
  check(cudnnSetConvolutionMathType(convolution_.get(), is_exact() ? CUDNN_FMA_MATH : type),
        "the math type of a convolution");
}

std::vector<ConvolutionAlgorithm> LegacyConvolution::proposals() {
  set_mathematics(CUDNN_TENSOR_OP_MATH);
  const bool deterministic = context_.options().deterministic;
  int count = 0;
  if (pass_ == ConvolutionPass::forward) {
    std::array<cudnnConvolutionFwdAlgoPerf_t, kMaxProposals> results;
    check(cudnnGetConvolutionForwardAlgorithm_v7(context_.cudnn(), input_.get(), kernel_.get(),
                                                 convolution_.get(), output_.get(), kMaxProposals,
                                                 &count, results.data()),
          describe(spec_));
    return working(results, count, deterministic);
  }
  if (pass_ == ConvolutionPass::backward_data) {
    std::array<cudnnConvolutionBwdDataAlgoPerf_t, kMaxProposals> results;
    check(cudnnGetConvolutionBackwardDataAlgorithm_v7(
              context_.cudnn(), kernel_.get(), output_.get(), convolution_.get(), input_.get(),
              kMaxProposals, &count, results.data()),
          describe(spec_));
    return working(results, count, deterministic);
  }
  std::array<cudnnConvolutionBwdFilterAlgoPerf_t, kMaxProposals> results;
  check(cudnnGetConvolutionBackwardFilterAlgorithm_v7(context_.cudnn(), input_.get(), output_.get(),
                                                      convolution_.get(), kernel_.get(),
                                                      kMaxProposals, &count, results.data()),
        describe(spec_));
  return working(results, count, deterministic);
}

bool LegacyConvolution::select(const ConvolutionAlgorithm& algorithm) {
  if (algorithm.math == kGraphMath) return false;
  set_mathematics(static_cast<cudnnMathType_t>(algorithm.math));
  algorithm_ = algorithm;
  return true;
}

void LegacyConvolution::run(const ConvolutionArrays& arrays, void* workspace) {
  constexpr float kOne = 1;
  constexpr float kZero = 0;
  if (pass_ == ConvolutionPass::forward) {
    check(cudnnConvolutionForward(
              context_.cudnn(), &kOne, input_.get(), arrays.input, kernel_.get(), arrays.kernel,
              convolution_.get(), static_cast<cudnnConvolutionFwdAlgo_t>(algorithm_.number),
              workspace, algorithm_.workspace_bytes, &kZero, output_.get(), arrays.output),
          describe(spec_));
  } else if (pass_ == ConvolutionPass::backward_filter) {
    check(cudnnConvolutionBackwardFilter(
              context_.cudnn(), &kOne, input_.get(), arrays.input, output_.get(), arrays.output,
              convolution_.get(), static_cast<cudnnConvolutionBwdFilterAlgo_t>(algorithm_.number),
              workspace, algorithm_.workspace_bytes, &kZero, kernel_.get(), arrays.kernel),
          describe(spec_));
  } else {
    check(cudnnConvolutionBackwardData(
              context_.cudnn(), &kOne, kernel_.get(), arrays.kernel, output_.get(), arrays.output,
              convolution_.get(), static_cast<cudnnConvolutionBwdDataAlgo_t>(algorithm_.number),
              workspace, algorithm_.workspace_bytes, spec_.adds_input_gradient ? &kOne : &kZero,
              input_.get(), arrays.input),
          describe(spec_));
  }
}

}  // namespace lockstep::inline v0::model::cuda
