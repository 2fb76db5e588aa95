#include "lockstep/model/layers/conv_2d/convolution_choice.h"

#include <fmt/format.h>

#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/model/layers/batch_normalization/kernels.h"
#include "lockstep/model/layers/conv_2d/folded_convolution.h"
#include "lockstep/model/layers/conv_2d/graph_convolution.h"
#include "lockstep/model/layers/conv_2d/legacy_convolution.h"
#include "lockstep/model/layers/conv_2d/padded_convolution.h"

namespace lockstep::inline v0::model::cuda {
namespace {

// A pass of a convolution whose input is zero after the first `channels` channels.
struct PassSpec {
  Conv2DSpec spec;
  std::int64_t channels;
  ConvolutionPass pass;

  std::string name() const {
    std::string_view name = "forward";
    if (pass == ConvolutionPass::backward_filter) name = "backward filter";
    if (pass == ConvolutionPass::backward_data)
      name = spec.adds_input_gradient ? "backward data that adds" : "backward data";
    return channels < spec.window.channels
               ? fmt::format("{} of the first {} channels", name, channels)
               : std::string(name);
  }
};

enum class Api { graph, legacy };

// An interface of cuDNN, and whether it runs on a folded image.
struct EngineKind {
  Api api;
  bool folds;
};

std::unique_ptr<ConvolutionEngine> make_engine(const EngineKind& kind, Context& context,
                                               const PassSpec& wanted) {
  const auto& [spec, channels, pass] = wanted;
  if (kind.folds) {
    const Conv2DSpec folded = with_folded_image(spec, channels, context.options().precision);
    return std::make_unique<FoldedConvolution>(
        context, spec, channels, pass,
        make_engine({kind.api, false}, context, {folded, folded.window.channels, pass}));
  }
  if (has_uneven_zeros(spec.window))
    return std::make_unique<PaddedConvolution>(
        context, spec, pass,
        make_engine(kind, context, {with_zeros_in_image(spec), channels, pass}));
  if (kind.api == Api::graph) return std::make_unique<GraphConvolution>(context, spec, pass);
  return std::make_unique<LegacyConvolution>(context, spec, pass);
}

using Engines = std::vector<std::unique_ptr<ConvolutionEngine>>;

// The engines with proposals. One that cuDNN refuses is omitted if there is another.
Engines engines_for(Context& context, const PassSpec& wanted) {
  const Convolutions allowed = context.options().convolutions;
  Engines engines;
  const auto add = [&](const EngineKind& kind) {
    auto engine = make_engine(kind, context, wanted);
    if (!engine->proposals().empty()) engines.push_back(std::move(engine));
    return true;
  };
  constexpr EngineKind kGraph{Api::graph, false};
  constexpr EngineKind kLegacy{Api::legacy, false};
  if (allowed == Convolutions::graph) add(kGraph);
  if (allowed == Convolutions::automatic) succeeds([&] { return add(kGraph); });
  if (allowed == Convolutions::legacy || (allowed == Convolutions::automatic && engines.empty()))
    add(kLegacy);
  else if (allowed == Convolutions::automatic)
    succeeds([&] { return add(kLegacy); });
  // Only a measurement shows whether folding is worth its copy.
  if (context.options().deterministic || !can_be_folded(wanted.spec, wanted.channels, wanted.pass))
    return engines;
  if (allowed != Convolutions::legacy) succeeds([&] { return add({Api::graph, true}); });
  if (allowed != Convolutions::graph) succeeds([&] { return add({Api::legacy, true}); });
  return engines;
}

// An engine for an algorithm from the cache; null if it does not work here.
std::unique_ptr<ConvolutionEngine> known_engine(Context& context, const PassSpec& wanted,
                                                const ConvolutionAlgorithm& algorithm) {
  const EngineKind kind{algorithm.math == kGraphMath ? Api::graph : Api::legacy, algorithm.folded};
  if (kind.folds && !can_be_folded(wanted.spec, wanted.channels, wanted.pass)) return nullptr;
  std::unique_ptr<ConvolutionEngine> engine;
  const bool works = succeeds([&] {
    engine = make_engine(kind, context, wanted);
    return engine->select(algorithm);
  });
  return works ? std::move(engine) : nullptr;
}

// The first proposal that works, without measurement or memory.
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

std::unique_ptr<ConvolutionEngine> choose_convolution(Context& context, const Conv2DSpec& spec,
                                                      std::int64_t channels, ConvolutionPass pass) {
  context.made_progress();
  const PassSpec wanted{spec, channels, pass};
  if (context.options().deterministic)
    return first_that_works(context, spec, engines_for(context, wanted));
  AlgorithmCache& cache = context.algorithms();
  const std::string name = algorithm_key(context, spec, wanted.name());
  if (const auto known = cache.find(name))
    if (auto engine = known_engine(context, wanted, *known)) return engine;
  Engines engines = engines_for(context, wanted);
  std::optional<ConvolutionAlgorithm> fastest;
  std::unique_ptr<ConvolutionEngine>* fastest_engine = nullptr;
  if (const auto memory = trial_memory(context, spec))
    context.measured([&] {
      float shortest = std::numeric_limits<float>::max();
      for (auto& engine : engines) {
        const auto enqueue = [&] { engine->run(memory->arrays(), memory->workspace.data()); };
        const auto found = fastest_of(context, *engine, *memory, enqueue, shortest);
        if (!found) continue;
        fastest = found;
        fastest_engine = &engine;
      }
      return true;
    });
  if (fastest_engine == nullptr || !(*fastest_engine)->select(*fastest))
    return first_that_works(context, spec, std::move(engines));
  cache.add(name, *fastest);
  return std::move(*fastest_engine);
}

namespace {

// The result in the cache if a separate convolution and statistics pass is faster.
constexpr ConvolutionAlgorithm kSeparate{.number = -1};

// Measures the result that the cache stores: a configuration of `summing`, or kSeparate.
ConvolutionAlgorithm measure_sums(Context& context, const Conv2DSpec& spec,
                                  ConvolutionEngine& separate, ConvolutionEngine& summing,
                                  TrialMemory& memory) {
  const auto allocate = [&](std::size_t bytes) { return context.allocator().allocate(bytes); };
  const WindowGeometry& w = spec.window;
  const Precision precision = context.options().precision;
  const ChannelLayout rows = channel_layout(spec.batch * w.output_height * w.output_width,
                                            spec.filters, precision, context.multiprocessors());
  const MomentsLayout moments{.channels = static_cast<std::size_t>(spec.filters)};
  const device::Buffer sums = allocate(channel_sums_bytes(spec.filters));
  const device::Buffer partials = allocate(partial_bytes(rows));
  const device::Buffer moment_buffer = allocate(moments.size() * sizeof(float));
  const StatisticsArguments statistics{.layout = moments,
                                       .moments = moment_buffer.as<float>().data()};
  ConvolutionArrays arrays = memory.arrays();
  arrays.sums = channel_sums(sums.as<std::byte>().data(), spec.filters);

  const TensorView written(arrays.output, static_cast<std::size_t>(rows.rows * rows.channels),
                           precision);
  float shortest = memory.timer.milliseconds(
      [&] {
        separate.run(arrays, memory.workspace.data());
        batch_statistics(written, rows, partials.data(), statistics, 0, context.native());
      },
      std::numeric_limits<float>::max());
  const auto enqueue = [&] {
    summing.run(arrays, memory.workspace.data());
    moments_of_sums(arrays.sums, rows.rows, statistics, 0, context.native());
  };
  return fastest_of(context, summing, memory, enqueue, shortest).value_or(kSeparate);
}

bool select_first(ConvolutionEngine& summing) {
  for (const ConvolutionAlgorithm& algorithm : summing.proposals())
    if (summing.select(algorithm)) return true;
  return false;
}

}  // namespace

bool may_sum_channels(const ComputeOptions& options) {
  return options.precision != Precision::float32 && !options.deterministic &&
         options.fused_statistics != FusedStatistics::never;
}

std::unique_ptr<ConvolutionEngine> choose_summing_convolution(Context& context,
                                                              const Conv2DSpec& spec,
                                                              ConvolutionEngine& separate) {
  if (!may_sum_channels(context.options()) || spec.groups != 1 || has_uneven_zeros(spec.window))
    return nullptr;
  AlgorithmCache& cache = context.algorithms();
  const std::string name = algorithm_key(context, spec, "forward with sums");
  const bool measures = context.options().fused_statistics == FusedStatistics::where_faster;
  auto known = measures ? cache.find(name) : std::nullopt;
  if (known && known->number == kSeparate.number) return nullptr;
  std::unique_ptr<ConvolutionEngine> summing;
  const bool is_selected = succeeds([&] {
    summing = std::make_unique<GraphConvolution>(context, spec, ConvolutionPass::forward, true);
    if (!measures) return select_first(*summing);
    if (!known) {
      known = kSeparate;
      if (!summing->proposals().empty()) {
        const auto memory = trial_memory(context, spec);
        if (!memory || separate.workspace_bytes() > memory->workspace.size()) return false;
        known = context.measured(
            [&] { return measure_sums(context, spec, separate, *summing, *memory); });
      }
      cache.add(name, *known);
    }
    return summing->select(*known);
  });
  return is_selected ? std::move(summing) : nullptr;
}

}  // namespace lockstep::inline v0::model::cuda
