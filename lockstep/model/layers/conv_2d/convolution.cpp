#include "lockstep/model/layers/conv_2d/convolution.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/device/gpu.h"
#include "lockstep/model/layers/conv_2d/graph_convolution.h"
#include "lockstep/model/layers/conv_2d/legacy_convolution.h"

namespace lockstep::model::cuda {
namespace {

constexpr int kMaxTrials = 8;
constexpr double kMaxTrialSeconds = 5;

struct Bytes {
  std::size_t input;
  std::size_t kernel;
  std::size_t output;
};

Bytes bytes_of(const Conv2DSpec& spec, Precision precision) {
  const WindowGeometry& w = spec.window;
  const auto bytes = [&](std::int64_t elements) {
    return static_cast<std::size_t>(elements) * element_bytes(precision);
  };
  return {
      .input = bytes(spec.batch * w.height * w.width * w.channels),
      .kernel = bytes(spec.filters * w.kernel_height * w.kernel_width * w.channels / spec.groups),
      .output = bytes(spec.batch * w.output_height * w.output_width * spec.filters)};
}

std::string_view work_of(const Conv2DSpec& spec, ConvolutionPass pass) {
  if (pass == ConvolutionPass::forward) return "forward";
  if (pass == ConvolutionPass::backward_filter) return "backward filter";
  return spec.adds_input_gradient ? "backward data that adds" : "backward data";
}

enum class Api { graph, legacy };

std::unique_ptr<ConvolutionEngine> make_engine(Api api, Context& context, const Conv2DSpec& spec,
                                               ConvolutionPass pass) {
  if (api == Api::graph) return std::make_unique<GraphConvolution>(context, spec, pass);
  return std::make_unique<LegacyConvolution>(context, spec, pass);
}

using Engines = std::vector<std::unique_ptr<ConvolutionEngine>>;

// Those that have proposals. One that cuDNN refuses is left out if there is another.
Engines engines_for(Context& context, const Conv2DSpec& spec, ConvolutionPass pass) {
  const Convolutions allowed = context.options().convolutions;
  Engines engines;
  const auto add = [&](Api api) {
    auto engine = make_engine(api, context, spec, pass);
    if (!engine->proposals().empty()) engines.push_back(std::move(engine));
    return true;
  };
  if (allowed == Convolutions::graph) add(Api::graph);
  if (allowed == Convolutions::automatic) succeeds([&] { return add(Api::graph); });
  if (allowed == Convolutions::legacy || (allowed == Convolutions::automatic && engines.empty()))
    add(Api::legacy);
  else if (allowed == Convolutions::automatic)
    succeeds([&] { return add(Api::legacy); });
  return engines;
}

// With an algorithm from the cache, which may not work here; null then.
std::unique_ptr<ConvolutionEngine> known_engine(Context& context, const Conv2DSpec& spec,
                                                ConvolutionPass pass,
                                                const ConvolutionAlgorithm& algorithm) {
  std::unique_ptr<ConvolutionEngine> engine;
  const bool works = succeeds([&] {
    engine =
        make_engine(algorithm.math == kGraphMath ? Api::graph : Api::legacy, context, spec, pass);
    return engine->select(algorithm);
  });
  return works ? std::move(engine) : nullptr;
}

// Without measurement and without memory.
std::unique_ptr<ConvolutionEngine> first_that_works(Context& context, const Conv2DSpec& spec,
                                                    Engines engines) {
  for (auto& engine : engines)
    for (const ConvolutionAlgorithm& algorithm : engine->proposals())
      if (succeeds([&] { return engine->select(algorithm); })) return std::move(engine);
  throw Error(ErrorCategory::device, "cudnn",
              fmt::format("expected {}{}", describe(spec),
                          context.options().deterministic ? " with a deterministic algorithm" : ""),
              fmt::format("cuDNN {} has no algorithm for it", cudnnGetVersion()));
}

}  // namespace

std::string describe(const Conv2DSpec& spec) {
  const WindowGeometry& w = spec.window;
  std::string padding = fmt::format("{}x{}", w.pad_top, w.pad_left);
  if (w.pad_bottom != w.pad_top || w.pad_right != w.pad_left)
    padding += fmt::format(" and {}x{}", w.pad_bottom, w.pad_right);
  return fmt::format(
      "a convolution of [{}, {}, {}, {}] with {} filters {}x{}, stride {}x{}, padding {}, {} "
      "groups",
      spec.batch, w.height, w.width, w.channels, spec.filters, w.kernel_height, w.kernel_width,
      w.stride_height, w.stride_width, padding, spec.groups);
}

std::string algorithm_key(const Context& context, const Conv2DSpec& spec, std::string_view work) {
  constexpr std::array<std::string_view, 3> kBy{"", " by graphs", " by the legacy API"};
  const ComputeOptions& options = context.options();
  return fmt::format("{}{} of {} in {}{} by cuDNN {} on {}", work,
                     kBy[static_cast<std::size_t>(options.convolutions)], describe(spec),
                     to_string(options.precision), options.tf32 ? " with TF32" : "",
                     cudnnGetVersion(), context.gpu_name());
}

TrialMemory::TrialMemory(Context& context, const Conv2DSpec& spec, std::size_t room)
    : timer(context) {
  const Bytes bytes = bytes_of(spec, context.options().precision);
  input = random_values(context, bytes.input);
  kernel = random_values(context, bytes.kernel);
  output = random_values(context, bytes.output);
  workspace = context.allocator().allocate(room);
}

std::unique_ptr<TrialMemory> trial_memory(Context& context, const Conv2DSpec& spec) {
  const Bytes bytes = bytes_of(spec, context.options().precision);
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

std::unique_ptr<ConvolutionEngine> choose_convolution(Context& context, const Conv2DSpec& spec,
                                                      ConvolutionPass pass) {
  context.made_progress();
  if (context.options().deterministic)
    return first_that_works(context, spec, engines_for(context, spec, pass));
  AlgorithmCache& cache = context.algorithms();
  const std::string name = algorithm_key(context, spec, work_of(spec, pass));
  if (const auto known = cache.find(name))
    if (auto engine = known_engine(context, spec, pass, *known)) return engine;
  Engines engines = engines_for(context, spec, pass);
  std::optional<ConvolutionAlgorithm> fastest;
  std::unique_ptr<ConvolutionEngine>* its_engine = nullptr;
  if (const auto memory = trial_memory(context, spec))
    context.measured([&] {
      float shortest = std::numeric_limits<float>::max();
      for (auto& engine : engines) {
        const auto enqueue = [&] { engine->run(memory->arrays(), memory->workspace.data()); };
        const auto found = fastest_of(context, *engine, *memory, enqueue, shortest);
        if (!found) continue;
        fastest = found;
        its_engine = &engine;
      }
      return true;
    });
  if (its_engine == nullptr || !(*its_engine)->select(*fastest))
    return first_that_works(context, spec, std::move(engines));
  cache.add(name, *fastest);
  return std::move(*its_engine);
}

}  // namespace lockstep::model::cuda
