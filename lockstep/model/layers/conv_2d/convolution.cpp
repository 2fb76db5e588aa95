#include "lockstep/model/layers/conv_2d/convolution.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/device/gpu.h"
#include "lockstep/model/cuda/algorithm_cache.h"
#include "lockstep/model/cuda/trial_timer.h"

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
  Tried(Context& context, const Bytes& bytes, std::size_t room)
      : input(random_values(context, bytes.input)),
        kernel(random_values(context, bytes.kernel)),
        output(random_values(context, bytes.output)),
        workspace(context.allocator().allocate(room)),
        timer(context) {}

  device::Buffer input;
  device::Buffer kernel;
  device::Buffer output;
  device::Buffer workspace;
  TrialTimer timer;
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
  return fmt::format("{} of {} in {}{} by cuDNN {} on {}", work, description_,
                     to_string(context_.options().precision),
                     context_.options().tf32 ? " with TF32" : "", cudnnGetVersion(),
                     context_.gpu_name());
}

ConvolutionAlgorithm Convolution::choose(ConvolutionPass pass) {
  context_.made_progress();
  allow_all_mathematics();  // another algorithm may have been used in the meantime
  if (context_.options().deterministic) return by_rules(pass);
  AlgorithmCache& cache = context_.algorithms();
  constexpr std::array<std::string_view, 3> kPasses{"forward", "backward data", "backward filter"};
  const std::string name = key(kPasses[static_cast<std::size_t>(pass)]);
  if (const auto known = cache.find(name)) return *known;
  const std::unique_ptr<Tried> memory = memory_for_trying();
  if (!memory) return by_rules(pass);
  const ConvolutionAlgorithm chosen = context_.measured([&] { return try_out(pass, *memory); });
  cache.add(name, chosen);
  return chosen;
}

namespace {

// The results for this pass that work, in cuDNN's order. The result types of all passes have the
// same fields.
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

bool Convolution::fits_for_trying() const {
  const std::size_t arrays = bytes_.input + bytes_.kernel + bytes_.output;
  return arrays <= device::gpu_free_bytes(context_.gpu()) / 4 * 3;
}

// What cuDNN's heuristics propose for this shape, the presumably fastest first; at least one.
std::vector<ConvolutionAlgorithm> Convolution::proposals(ConvolutionPass pass) {
  const bool deterministic = context_.options().deterministic;
  int count = 0;
  std::vector<ConvolutionAlgorithm> found;
  if (pass == ConvolutionPass::forward) {
    std::array<cudnnConvolutionFwdAlgoPerf_t, kMaxTried> results;
    check(cudnnGetConvolutionForwardAlgorithm_v7(context_.cudnn(), input_.get(), kernel_.get(),
                                                 convolution_.get(), output_.get(), kMaxTried,
                                                 &count, results.data()),
          description_);
    found = working(results, count, deterministic);
  } else if (pass == ConvolutionPass::backward_data) {
    std::array<cudnnConvolutionBwdDataAlgoPerf_t, kMaxTried> results;
    check(cudnnGetConvolutionBackwardDataAlgorithm_v7(
              context_.cudnn(), kernel_.get(), output_.get(), convolution_.get(), input_.get(),
              kMaxTried, &count, results.data()),
          description_);
    found = working(results, count, deterministic);
  } else {
    std::array<cudnnConvolutionBwdFilterAlgoPerf_t, kMaxTried> results;
    check(cudnnGetConvolutionBackwardFilterAlgorithm_v7(
              context_.cudnn(), input_.get(), output_.get(), convolution_.get(), kernel_.get(),
              kMaxTried, &count, results.data()),
          description_);
    found = working(results, count, deterministic);
  }
  if (!found.empty()) return found;
  throw Error(ErrorCategory::device, "cudnn",
              fmt::format("expected {}{}", description_,
                          deterministic ? " with a deterministic algorithm" : ""),
              fmt::format("cuDNN {} has no algorithm for it", cudnnGetVersion()));
}

// Without measurement and without memory.
ConvolutionAlgorithm Convolution::by_rules(ConvolutionPass pass) { return proposals(pass).front(); }

std::unique_ptr<Convolution::Tried> Convolution::memory_for_trying() {
  if (!fits_for_trying()) return nullptr;
  const std::size_t room = std::min(kMaxWorkspace, device::gpu_free_bytes(context_.gpu()) / 4);
  try {
    return std::make_unique<Tried>(context_, bytes_, room);
  } catch (const Error&) {  // another replica on this GPU took the memory first
    return nullptr;
  }
}

void Convolution::run(ConvolutionPass pass, const ConvolutionAlgorithm& algorithm,
                      const Tried& on) {
  void* const workspace = on.workspace.data();
  if (pass == ConvolutionPass::forward)
    forward(algorithm, on.input.data(), on.kernel.data(), workspace, on.output.data());
  else if (pass == ConvolutionPass::backward_data)
    backward_data(algorithm, on.kernel.data(), on.output.data(), workspace, on.input.data());
  else
    backward_filter(algorithm, on.input.data(), on.output.data(), workspace, on.kernel.data());
}

ConvolutionAlgorithm Convolution::try_out(ConvolutionPass pass, Tried& on) {
  const std::vector<ConvolutionAlgorithm> all = proposals(pass);
  ConvolutionAlgorithm best = all.front();
  float shortest = std::numeric_limits<float>::max();
  for (const ConvolutionAlgorithm& algorithm : all) {
    if (algorithm.workspace_bytes > on.workspace.size()) continue;
    context_.made_progress();
    float time = shortest;
    const bool works = succeeds([&] {
      time = on.timer.milliseconds([&] { run(pass, algorithm, on); }, shortest);
      return true;
    });
    if (!works || time >= shortest) continue;
    shortest = time;
    best = algorithm;
  }
  return best;
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
                                const void* output_gradient, void* workspace, void* input_gradient,
                                bool add) {
  constexpr float kOne = 1;
  const float kept = add ? 1 : 0;
  use(algorithm);
  check(cudnnConvolutionBackwardData(
            context_.cudnn(), &kOne, kernel_.get(), kernel, output_.get(), output_gradient,
            convolution_.get(), static_cast<cudnnConvolutionBwdDataAlgo_t>(algorithm.number),
            workspace, algorithm.workspace_bytes, &kept, input_.get(), input_gradient),
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
