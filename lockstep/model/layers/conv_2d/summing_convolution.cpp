#include "lockstep/model/layers/conv_2d/summing_convolution.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/model/cuda/trial_timer.h"
#include "lockstep/model/layers/batch_normalization/kernels.h"

namespace lockstep::model::cuda {
namespace {

// Tensor ids of the graph.
enum Id : std::int64_t { kInput = 1, kKernel, kOutput, kSums, kSquares };
constexpr std::array<std::int64_t, 5> kIds{kInput, kKernel, kOutput, kSums, kSquares};

// The algorithm number in the cache if a separate convolution and statistics pass is faster.
constexpr int kApart = -1;

// Limits of a trial, per shape: making the plan of a configuration can take long.
constexpr int kMaxTrials = 8;
constexpr double kMaxTrialSeconds = 5;

GraphDescriptor describe_window(const WindowGeometry& w) {
  const std::array<std::int64_t, 2> strides{w.stride_height, w.stride_width};
  const std::array<std::int64_t, 2> zeros{w.pad_top, w.pad_left};
  constexpr std::array<std::int64_t, 2> kDilations{1, 1};
  constexpr std::int64_t kDimensions = 2;
  GraphDescriptor window(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  window.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT)
      .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION)
      .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, kDimensions)
      .set_all<std::int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, strides)
      .set_all<std::int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, zeros)
      .set_all<std::int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, zeros)
      .set_all<std::int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS, kDilations)
      .finalize();
  return window;
}

GraphDescriptor describe_convolution(const GraphDescriptor& window, const GraphDescriptor& input,
                                     const GraphDescriptor& kernel, const GraphDescriptor& output) {
  constexpr float kOne = 1;
  constexpr float kZero = 0;
  GraphDescriptor convolution(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
  convolution.refer_to(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, window)
      .refer_to(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, input)
      .refer_to(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, kernel)
      .refer_to(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, output)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, kOne)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, kZero)
      .finalize();
  return convolution;
}

GraphDescriptor describe_sums(const GraphDescriptor& of, const GraphDescriptor& sums,
                              const GraphDescriptor& squares) {
  GraphDescriptor statistics(CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
  statistics.set(CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_GENSTATS_SUM_SQSUM)
      .set(CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_DATA_FLOAT)
      .refer_to(CUDNN_ATTR_OPERATION_GENSTATS_XDESC, of)
      .refer_to(CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, sums)
      .refer_to(CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, squares)
      .finalize();
  return statistics;
}

}  // namespace

bool may_sum_channels(const ComputeOptions& options) {
  return options.precision != Precision::float32 && !options.deterministic &&
         options.fused_statistics != FusedStatistics::never;
}

SummingGraph::SummingGraph(cudnnHandle_t handle, cudnnDataType_t type, const Conv2DSpec& spec,
                           const WindowGeometry& w)
    : input_(describe_tensor(kInput, type, {spec.batch, w.channels, w.height, w.width})),
      kernel_(describe_tensor(kKernel, type,
                              {spec.filters, w.channels, w.kernel_height, w.kernel_width})),
      output_(describe_tensor(kOutput, type,
                              {spec.batch, spec.filters, w.output_height, w.output_width})),
      sums_(describe_tensor(kSums, CUDNN_DATA_FLOAT, {1, spec.filters, 1, 1})),
      squares_(describe_tensor(kSquares, CUDNN_DATA_FLOAT, {1, spec.filters, 1, 1})),
      window_(describe_window(w)),
      convolution_(describe_convolution(window_, input_, kernel_, output_)),
      statistics_(describe_sums(output_, sums_, squares_)),
      whole_(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) {
  LOCKSTEP_CHECK(!spec.bias && !spec.relu && spec.groups == 1);
  const std::array<const GraphDescriptor*, 2> operations{&convolution_, &statistics_};
  whole_.refer_to(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations);
  if (handle != nullptr) whole_.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle);
  whole_.finalize();
}

SummingConvolution::SummingConvolution(Context& context, const Conv2DSpec& spec,
                                       const WindowGeometry& window)
    : context_(context), graph_(context.cudnn(), context.cudnn_type(), spec, window) {
  // The second mode lists configurations that are likely to work rather than fast.
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK})
    for (GraphDescriptor& one : engine_configurations(graph_.whole(), mode))
      if (!is_compiled_at_run_time(one)) configurations_.push_back(std::move(one));
}

bool SummingConvolution::take(int number) {
  plan_ = GraphPlan::of(context_.cudnn(), configurations_.at(static_cast<std::size_t>(number)));
  return plan_.has_value();
}

void SummingConvolution::forward(const void* input, const void* kernel, void* workspace,
                                 void* output, const ChannelSums& sums) {
  const std::array<void*, kIds.size()> memory{const_cast<void*>(input), const_cast<void*>(kernel),
                                              output, sums.values, sums.squares};
  plan_->run(context_.cudnn(), kIds, memory, workspace);
}

namespace {

// Measures the result that the cache stores: the number of a configuration, or kApart.
class Trial {
 public:
  Trial(Context& context, const Conv2DSpec& spec, const WindowGeometry& window, Convolution& apart)
      : context_(context),
        apart_(apart),
        rows_(channel_layout(spec.batch * window.output_height * window.output_width, spec.filters,
                             context.options().precision, context.multiprocessors())),
        moments_{.channels = static_cast<std::size_t>(spec.filters)},
        timer_(context),
        input_(random_values(context, apart.bytes().input)),
        kernel_(random_values(context, apart.bytes().kernel)),
        output_(allocate(apart.bytes().output)),
        sums_(allocate(channel_sums_bytes(spec.filters))),
        partials_(allocate(partial_bytes(rows_))),
        of_moments_(allocate(moments_.size() * sizeof(float))) {}

  ConvolutionAlgorithm run(SummingConvolution& summing, const ConvolutionAlgorithm& algorithm) {
    ConvolutionAlgorithm best{.number = kApart};
    float shortest = time_apart(algorithm);
    const auto start = std::chrono::steady_clock::now();
    for (int number = 0; number < std::min(summing.ways(), kMaxTrials); ++number) {
      if (seconds_since(start) > kMaxTrialSeconds) break;
      context_.made_progress();
      float time = shortest;
      const bool works = succeeds([&] {
        if (!summing.take(number) || summing.workspace_bytes() > kMaxWorkspace) return false;
        time = time_together(summing, shortest);
        return true;
      });
      if (!works || time >= shortest) continue;
      shortest = time;
      best = {.number = number, .workspace_bytes = summing.workspace_bytes()};
    }
    return best;
  }

 private:
  device::Buffer allocate(std::size_t bytes) { return context_.allocator().allocate(bytes); }
  StatisticsArguments statistics() const {
    return {.layout = moments_, .moments = of_moments_.as<float>().data()};
  }

  float time_apart(const ConvolutionAlgorithm& algorithm) {
    const device::Buffer workspace = allocate(algorithm.workspace_bytes);
    const Precision precision = context_.options().precision;
    const TensorView written(output_.data(), apart_.bytes().output / element_bytes(precision),
                             precision);
    return timer_.milliseconds(
        [&] {
          apart_.forward(algorithm, input_.data(), kernel_.data(), workspace.data(),
                         output_.data());
          batch_statistics(written, rows_, partials_.data(), statistics(), 0, context_.native());
        },
        std::numeric_limits<float>::max());
  }

  float time_together(SummingConvolution& summing, float limit) {
    const device::Buffer workspace = allocate(summing.workspace_bytes());
    const ChannelSums sums = channel_sums(sums_.as<std::byte>().data(), rows_.channels);
    return timer_.milliseconds(
        [&] {
          summing.forward(input_.data(), kernel_.data(), workspace.data(), output_.data(), sums);
          moments_of_sums(sums, rows_.rows, statistics(), 0, context_.native());
        },
        limit);
  }

  Context& context_;
  Convolution& apart_;
  ChannelLayout rows_;
  MomentsLayout moments_;
  TrialTimer timer_;
  device::Buffer input_;
  device::Buffer kernel_;
  device::Buffer output_;
  device::Buffer sums_;
  device::Buffer partials_;
  device::Buffer of_moments_;
};

bool take_first(SummingConvolution& summing) {
  for (int number = 0; number < summing.ways(); ++number)
    if (summing.take(number) && summing.workspace_bytes() <= kMaxWorkspace) return true;
  return false;
}

// Selects configuration `number`, which comes from the cache.
bool take_known(SummingConvolution& summing, int number) {
  return number >= 0 && number < summing.ways() && summing.take(number);
}

}  // namespace

std::unique_ptr<SummingConvolution> choose_summing_convolution(
    Context& context, const Conv2DSpec& spec, const WindowGeometry& window, Convolution& apart,
    const ConvolutionAlgorithm& algorithm) {
  if (!may_sum_channels(context.options()) || spec.groups != 1) return nullptr;
  AlgorithmCache& cache = context.algorithms();
  const std::string name = apart.key("forward with sums");
  const bool measures = context.options().fused_statistics == FusedStatistics::where_faster;
  auto known = measures ? cache.find(name) : std::nullopt;
  if (known && known->number == kApart) return nullptr;
  if (measures && !known && !apart.fits_for_trying()) return nullptr;
  std::unique_ptr<SummingConvolution> summing;
  const bool is_taken = succeeds([&] {
    summing = std::make_unique<SummingConvolution>(context, spec, window);
    if (!measures) return take_first(*summing);
    if (!known) {
      known = {.number = kApart};
      if (summing->ways() > 0)
        known = context.measured(
            [&] { return Trial(context, spec, window, apart).run(*summing, algorithm); });
      cache.add(name, *known);
    }
    return take_known(*summing, known->number);
  });
  return is_taken ? std::move(summing) : nullptr;
}

}  // namespace lockstep::model::cuda
