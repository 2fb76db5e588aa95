#include "lockstep/model/layers/conv_2d/convolution.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/device/gpu.h"

namespace lockstep::inline v0::model::cuda {
namespace {

constexpr int kMaxTrials = 8;
constexpr double kMaxTrialSeconds = 5;

struct TensorBytes {
  std::size_t input;
  std::size_t kernel;
  std::size_t output;
};

TensorBytes bytes_of(const Conv2DSpec& spec, Precision precision) {
  const WindowGeometry& w = spec.window;
  const auto bytes = [&](std::int64_t elements) {
    return static_cast<std::size_t>(elements) * element_bytes(precision);
  };
  return {
      .input = bytes(spec.batch * w.height * w.width * w.channels),
      .kernel = bytes(spec.filters * w.kernel_height * w.kernel_width * w.channels / spec.groups),
      .output = bytes(spec.batch * w.output_height * w.output_width * spec.filters)};
}

}  // namespace

std::string describe(const Conv2DSpec& spec) {
  const WindowGeometry& w = spec.window;
  std::string padding = fmt::format("{}x{}", w.pad_top, w.pad_left);
  if (w.pad_bottom != w.pad_top || w.pad_right != w.pad_left)
    padding += fmt::format(" and {}x{}", w.pad_bottom, w.pad_right);
  const std::string dilation =
      w.is_dilated() ? fmt::format(", dilation {}x{}", w.dilation_height, w.dilation_width) : "";
  return fmt::format(
      "a convolution of [{}, {}, {}, {}] with {} filters {}x{}, stride {}x{}, padding {}, {} "
      "groups{}",
      spec.batch, w.height, w.width, w.channels, spec.filters, w.kernel_height, w.kernel_width,
      w.stride_height, w.stride_width, padding, spec.groups, dilation);
}

std::string algorithm_key(const Context& context, const Conv2DSpec& spec, std::string_view work) {
  constexpr std::array<std::string_view, 3> kBy{"", " by graphs", " by the legacy API"};
  const ComputeOptions& options = context.options();
  return fmt::format("{}{} of {} in {}{} by cuDNN {} on {}", work,
                     kBy[static_cast<std::size_t>(options.convolutions)], describe(spec),
                     to_string(options.precision), options.tf32 ? " with TF32" : "",
                     cudnnGetVersion(), context.gpu_name());
}

TrialMemory::TrialMemory(Context& context, const Conv2DSpec& spec, std::size_t workspace_bytes)
    : timer(context) {
  const TensorBytes bytes = bytes_of(spec, context.options().precision);
  input = random_values(context, bytes.input);
  kernel = random_values(context, bytes.kernel);
  output = random_values(context, bytes.output);
  workspace = context.allocator().allocate(workspace_bytes);
}

std::unique_ptr<TrialMemory> trial_memory(Context& context, const Conv2DSpec& spec) {
  const TensorBytes bytes = bytes_of(spec, context.options().precision);
  const std::size_t free = device::gpu_free_bytes(context.gpu());
  if (bytes.input + bytes.kernel + bytes.output > free / 4 * 3) return nullptr;
  try {
    return std::make_unique<TrialMemory>(context, spec, std::min(kMaxWorkspace, free / 4));
  } catch (const Error&) {  // another replica on this GPU took the memory first
    return nullptr;
  }
}

std::optional<ConvolutionAlgorithm> fastest_of(Context& context, ConvolutionEngine& engine,
                                               TrialMemory& memory,
                                               const std::function<void()>& enqueue,
                                               float& shortest) {
  const auto start = std::chrono::steady_clock::now();
  std::optional<ConvolutionAlgorithm> best;
  int trials = 0;
  for (const ConvolutionAlgorithm& algorithm : engine.proposals()) {
    if (trials++ == kMaxTrials || seconds_since(start) > kMaxTrialSeconds) break;
    context.made_progress();
    float time = shortest;
    const bool works = succeeds([&] {
      if (!engine.select(algorithm) || engine.workspace_bytes() > memory.workspace.size())
        return false;
      time = memory.timer.milliseconds(enqueue, shortest);
      return true;
    });
    if (!works || time >= shortest) continue;
    shortest = time;
    best = algorithm;
  }
  return best;
}

}  // namespace lockstep::inline v0::model::cuda
