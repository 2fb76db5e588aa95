#include "lockstep/model/layers/conv_2d/summing_convolution.h"

#include <limits>
#include <optional>

#include "lockstep/model/layers/batch_normalization/kernels.h"
#include "lockstep/model/layers/conv_2d/graph_convolution.h"

namespace lockstep::model::cuda {
namespace {

// The result in the cache if a separate convolution and statistics pass is faster.
constexpr ConvolutionAlgorithm kApart{.number = -1};

// Measures the result that the cache stores: a configuration of `summing`, or kApart.
ConvolutionAlgorithm try_out(Context& context, const Conv2DSpec& spec, ConvolutionEngine& apart,
                             ConvolutionEngine& summing, TrialMemory& memory) {
  const auto allocate = [&](std::size_t bytes) { return context.allocator().allocate(bytes); };
  const WindowGeometry& w = spec.window;
  const Precision precision = context.options().precision;
  const ChannelLayout rows = channel_layout(spec.batch * w.output_height * w.output_width,
                                            spec.filters, precision, context.multiprocessors());
  const MomentsLayout moments{.channels = static_cast<std::size_t>(spec.filters)};
  const device::Buffer sums = allocate(channel_sums_bytes(spec.filters));
  const device::Buffer partials = allocate(partial_bytes(rows));
  const device::Buffer of_moments = allocate(moments.size() * sizeof(float));
  const StatisticsArguments statistics{.layout = moments, .moments = of_moments.as<float>().data()};
  ConvolutionArrays arrays = memory.arrays();
  arrays.sums = channel_sums(sums.as<std::byte>().data(), spec.filters);

  const TensorView written(arrays.output, static_cast<std::size_t>(rows.rows * rows.channels),
                           precision);
  float shortest = memory.timer.milliseconds(
      [&] {
        apart.run(arrays, memory.workspace.data());
        batch_statistics(written, rows, partials.data(), statistics, 0, context.native());
      },
      std::numeric_limits<float>::max());
  const auto enqueue = [&] {
    summing.run(arrays, memory.workspace.data());
    moments_of_sums(arrays.sums, rows.rows, statistics, 0, context.native());
  };
  return fastest_of(context, summing, memory, enqueue, shortest).value_or(kApart);
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
                                                              ConvolutionEngine& apart) {
  if (!may_sum_channels(context.options()) || spec.groups != 1) return nullptr;
  AlgorithmCache& cache = context.algorithms();
  const std::string name = algorithm_key(context, spec, "forward with sums");
  const bool measures = context.options().fused_statistics == FusedStatistics::where_faster;
  auto known = measures ? cache.find(name) : std::nullopt;
  if (known && known->number == kApart.number) return nullptr;
  std::unique_ptr<ConvolutionEngine> summing;
  const bool is_selected = succeeds([&] {
    summing = std::make_unique<GraphConvolution>(context, spec, ConvolutionPass::forward, true);
    if (!measures) return select_first(*summing);
    if (!known) {
      known = kApart;
      if (!summing->proposals().empty()) {
        const auto memory = trial_memory(context, spec);
        if (!memory || apart.workspace_bytes() > memory->workspace.size()) return false;
        known = context.measured([&] { return try_out(context, spec, apart, *summing, *memory); });
      }
      cache.add(name, *known);
    }
    return summing->select(*known);
  });
  return is_selected ? std::move(summing) : nullptr;
}

}  // namespace lockstep::model::cuda
