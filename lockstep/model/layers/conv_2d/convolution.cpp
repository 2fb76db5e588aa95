#include "lockstep/model/layers/conv_2d/convolution.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/device/gpu.h"
#include "lockstep/model/cuda/algorithm_cache.h"

namespace lockstep::model::cuda {
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

constexpr int kMaxTried = 16;

}  // namespace

// Temporary memory for trying out algorithms.
struct Convolution::Tried {
  device::Buffer input;
  device::Buffer kernel;
  device::Buffer output;
  device::Buffer workspace;
};

Convolution::Convolution(Context& context, const Conv2DSpec& spec, const WindowGeometry& w)
    : context_(context),
      description_(
          fmt::format("a convolution of [{}, {}, {}, {}] with {} filters {}x{}, stride {}x{}",
                      spec.batch, w.height, w.width, w.channels, spec.filters, w.kernel_height,
                      w.kernel_width, w.stride_height, w.stride_width)),
      kernel_(
          make<cudnnFilterDescriptor_t, cudnnCreateFilterDescriptor, cudnnDestroyFilterDescriptor>(
              "a filter")),
      convolution_(make<cudnnConvolutionDescriptor_t, cudnnCreateConvolutionDescriptor,
                        cudnnDestroyConvolutionDescriptor>("a convolution")) {
  LOCKSTEP_CHECK_OP(w.pad_top, ==, w.pad_bottom);
  LOCKSTEP_CHECK_OP(w.pad_left, ==, w.pad_right);
  const cudnnDataType_t type = context.cudnn_type();
  const auto bytes = [&](std::int64_t elements) {
    return static_cast<std::size_t>(elements) * element_bytes(context.options().precision);
  };
  const std::int64_t inputs = w.channels / spec.groups;
  bytes_.input = bytes(spec.batch * w.height * w.width * w.channels);
  bytes_.kernel = bytes(spec.filters * w.kernel_height * w.kernel_width * inputs);
  bytes_.output = bytes(spec.batch * w.output_height * w.output_width * spec.filters);
  input_ = describe_image(type, spec.batch, w.height, w.width, w.channels);
  output_ = describe_image(type, spec.batch, w.output_height, w.output_width, spec.filters);
  check(cudnnSetFilter4dDescriptor(kernel_.get(), type, CUDNN_TENSOR_NHWC,
                                   static_cast<int>(spec.filters), static_cast<int>(inputs),
                                   static_cast<int>(w.kernel_height),
                                   static_cast<int>(w.kernel_width)),
        description_);
  check(cudnnSetConvolution2dDescriptor(
            convolution_.get(), static_cast<int>(w.pad_top), static_cast<int>(w.pad_left),
            static_cast<int>(w.stride_height), static_cast<int>(w.stride_width), 1, 1,
            CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
        description_);
  check(cudnnSetConvolutionGroupCount(convolution_.get(), static_cast<int>(spec.groups)),
        description_);
  description_ += fmt::format(", padding {}x{}, {} groups", w.pad_top, w.pad_left, spec.groups);
  allow_all_mathematics();
}

void Convolution::allow_all_mathematics() {
  check(cudnnSetConvolutionMathType(convolution_.get(),
                                    is_exact() ? CUDNN_FMA_MATH : CUDNN_TENSOR_OP_MATH),
        description_);
}

bool Convolution::is_exact() const {
  return context_.options().precision == Precision::float32 && !context_.options().tf32;
}

std::string Convolution::key(std::string_view work) const {
  const std::vector<device::GpuInfo> gpus = device::list_gpus();
  return fmt::format("{} of {} in {}{} by cuDNN {} on {}", work, description_,
                     to_string(context_.options().precision),
                     context_.options().tf32 ? " with TF32" : "", cudnnGetVersion(),
                     gpus.at(static_cast<std::size_t>(context_.gpu())).name);
}

ConvolutionAlgorithm Convolution::choose(ConvolutionPass pass) {
  context_.made_progress();
  allow_all_mathematics();  // another algorithm may have been used in the meantime
  if (context_.options().deterministic) return by_rules(pass);
  AlgorithmCache& cache = context_.algorithms();
  constexpr std::array<std::string_view, 3> kPasses{"forward", "backward data", "backward filter"};
  const std::string name = key(kPasses[static_cast<std::size_t>(pass)]);
  if (const auto known = cache.find(name)) return *known;
  const std::optional<Tried> memory = memory_for_trying();
  if (!memory) return by_rules(pass);
  const ConvolutionAlgorithm chosen = try_out(pass, *memory);
  cache.add(name, chosen);
  return chosen;
}

namespace {

// The first working result, ordered by time, that is deterministic if required. The result types of
// all passes have the same fields.
template <typename Results>
ConvolutionAlgorithm first_of(const Results& results, int count, bool deterministic,
                              const std::string& description) {
  for (int i = 0; i < count; ++i) {
    const auto& result = results[i];
    if (result.status != CUDNN_STATUS_SUCCESS || result.memory > kMaxWorkspace) continue;
    if (deterministic && result.determinism != CUDNN_DETERMINISTIC) continue;
    return {static_cast<int>(result.algo), static_cast<int>(result.mathType), result.memory};
  }
  throw Error(ErrorCategory::device, "cudnn",
              fmt::format("expected {}{}", description,
                          deterministic ? " with a deterministic algorithm" : ""),
              fmt::format("cuDNN {} has no algorithm for it", cudnnGetVersion()));
}

}  // namespace

bool Convolution::fits_for_trying() const {
  const std::size_t arrays = bytes_.input + bytes_.kernel + bytes_.output;
  return arrays <= device::gpu_free_bytes(context_.gpu()) / 4 * 3;
}

// By cuDNN's heuristics for this shape, without measurement and without memory.
ConvolutionAlgorithm Convolution::by_rules(ConvolutionPass pass) {
  const bool deterministic = context_.options().deterministic;
  int count = 0;
  if (pass == ConvolutionPass::forward) {
    std::array<cudnnConvolutionFwdAlgoPerf_t, kMaxTried> results;
    check(cudnnGetConvolutionForwardAlgorithm_v7(context_.cudnn(), input_.get(), kernel_.get(),
                                                 convolution_.get(), output_.get(), kMaxTried,
                                                 &count, results.data()),
          description_);
    return first_of(results, count, deterministic, description_);
  }
  if (pass == ConvolutionPass::backward_data) {
    std::array<cudnnConvolutionBwdDataAlgoPerf_t, kMaxTried> results;
    check(cudnnGetConvolutionBackwardDataAlgorithm_v7(
              context_.cudnn(), kernel_.get(), output_.get(), convolution_.get(), input_.get(),
              kMaxTried, &count, results.data()),
          description_);
    return first_of(results, count, deterministic, description_);
  }
  std::array<cudnnConvolutionBwdFilterAlgoPerf_t, kMaxTried> results;
  check(cudnnGetConvolutionBackwardFilterAlgorithm_v7(context_.cudnn(), input_.get(), output_.get(),
                                                      convolution_.get(), kernel_.get(), kMaxTried,
                                                      &count, results.data()),
        description_);
  return first_of(results, count, deterministic, description_);
}

std::optional<Convolution::Tried> Convolution::memory_for_trying() {
  if (!fits_for_trying()) return std::nullopt;
  device::Allocator& allocator = context_.allocator();
  const std::size_t room = std::min(kMaxWorkspace, device::gpu_free_bytes(context_.gpu()) / 4);
  try {
    return Tried{allocator.allocate(bytes_.input), allocator.allocate(bytes_.kernel),
                 allocator.allocate(bytes_.output), allocator.allocate(room)};
  } catch (const Error&) {  // another replica on this GPU took the memory first
    return std::nullopt;
  }
}

ConvolutionAlgorithm Convolution::try_out(ConvolutionPass pass, const Tried& on) {
  const std::size_t room = on.workspace.size();
  int count = 0;
  if (pass == ConvolutionPass::forward) {
    std::array<cudnnConvolutionFwdAlgoPerf_t, kMaxTried> results;
    check(cudnnFindConvolutionForwardAlgorithmEx(
              context_.cudnn(), input_.get(), on.input.data(), kernel_.get(), on.kernel.data(),
              convolution_.get(), output_.get(), on.output.data(), kMaxTried, &count,
              results.data(), on.workspace.data(), room),
          description_);
    return first_of(results, count, false, description_);
  }
  if (pass == ConvolutionPass::backward_data) {
    std::array<cudnnConvolutionBwdDataAlgoPerf_t, kMaxTried> results;
    check(cudnnFindConvolutionBackwardDataAlgorithmEx(
              context_.cudnn(), kernel_.get(), on.kernel.data(), output_.get(), on.output.data(),
              convolution_.get(), input_.get(), on.input.data(), kMaxTried, &count, results.data(),
              on.workspace.data(), room),
          description_);
    return first_of(results, count, false, description_);
  }
  std::array<cudnnConvolutionBwdFilterAlgoPerf_t, kMaxTried> results;
  check(cudnnFindConvolutionBackwardFilterAlgorithmEx(
            context_.cudnn(), input_.get(), on.input.data(), output_.get(), on.output.data(),
            convolution_.get(), kernel_.get(), on.kernel.data(), kMaxTried, &count, results.data(),
            on.workspace.data(), room),
        description_);
  return first_of(results, count, false, description_);
}

void Convolution::use(const ConvolutionAlgorithm& algorithm) {
  // Overrides the math type that the trial reported for the algorithm: any other type may round
  // float32 to 10 bits.
  check(cudnnSetConvolutionMathType(
            convolution_.get(),
            is_exact() ? CUDNN_FMA_MATH : static_cast<cudnnMathType_t>(algorithm.math)),
        description_);
}

void Convolution::forward(const ConvolutionAlgorithm& algorithm, const void* input,
                          const void* kernel, void* workspace, void* output) {
  constexpr float kOne = 1;
  constexpr float kZero = 0;
  use(algorithm);
  check(cudnnConvolutionForward(context_.cudnn(), &kOne, input_.get(), input, kernel_.get(), kernel,
                                convolution_.get(),
                                static_cast<cudnnConvolutionFwdAlgo_t>(algorithm.number), workspace,
                                algorithm.workspace_bytes, &kZero, output_.get(), output),
        description_);
}

void Convolution::backward_data(const ConvolutionAlgorithm& algorithm, const void* kernel,
                                const void* output_gradient, void* workspace,
                                void* input_gradient) {
  constexpr float kOne = 1;
  constexpr float kZero = 0;
  use(algorithm);
  check(cudnnConvolutionBackwardData(
            context_.cudnn(), &kOne, kernel_.get(), kernel, output_.get(), output_gradient,
            convolution_.get(), static_cast<cudnnConvolutionBwdDataAlgo_t>(algorithm.number),
            workspace, algorithm.workspace_bytes, &kZero, input_.get(), input_gradient),
        description_);
}

void Convolution::backward_filter(const ConvolutionAlgorithm& algorithm, const void* input,
                                  const void* output_gradient, void* workspace,
                                  void* kernel_gradient) {
  constexpr float kOne = 1;
  constexpr float kZero = 0;
  use(algorithm);
  check(cudnnConvolutionBackwardFilter(
            context_.cudnn(), &kOne, input_.get(), input, output_.get(), output_gradient,
            convolution_.get(), static_cast<cudnnConvolutionBwdFilterAlgo_t>(algorithm.number),
            workspace, algorithm.workspace_bytes, &kZero, kernel_.get(), kernel_gradient),
        description_);
}

}  // namespace lockstep::model::cuda
