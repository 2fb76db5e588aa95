#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/device/cuda/cuda.h"
#include "lockstep/device/gpu.h"
#include "lockstep/device/host_view.h"
#include "lockstep/model/cuda/context.h"
#include "lockstep/model/cuda/elementwise.h"
#include "lockstep/model/cuda/input_feed.h"
#include "lockstep/model/cuda/loss.h"
#include "lockstep/model/cuda/updater.h"
#include "lockstep/model/layer/backend.h"
#include "lockstep/model/layer/builtin_layer.h"
#include "lockstep/model/layers/conv_2d/convolution_choice.h"

namespace lockstep::inline v0::model {
namespace {

using cuda::Context;

// The parameters of a pass, in GPU memory.
struct PassNumbers {
  float gradient_factor = 0;  // loss scale / samples of the global batch
};

// The components of the targets of a batch, on which recorded work depends.
struct TargetKind {
  bool mixed = false;
  bool weighted = false;
  bool operator==(const TargetKind&) const = default;
};

class CudaBackend final : public Backend {
 public:
  CudaBackend(int gpu, const ComputeOptions& options, const ComputeHooks& hooks)
      : context_(gpu, options, hooks),
        pass_(context_),
        feed_(context_),
        sums_(context_.allocator().allocate(sizeof(MetricSums))),
        fetched_(device::make_pinned_allocator()->allocate(sizeof(MetricSums))) {}

  std::string name() const override {
    return to_string(device::Device{device::DeviceKind::gpu, context_.gpu()});
  }
  bool runs_on_host() const override { return false; }
  bool fuses_statistics() const override { return cuda::may_sum_channels(context_.options()); }
  Precision precision() const override { return context_.options().precision; }
  device::Allocator& allocator() override { return context_.allocator(); }
  std::size_t free_bytes() override { return device::gpu_free_bytes(context_.gpu()); }
  device::Stream& stream() override { return context_.stream(); }

  std::set<std::string> choices() const override { return context_.choices(); }
  double tuning_seconds() const override { return context_.tuning_seconds(); }
  std::unique_ptr<Operation> compile(const BuiltinLayer& layer,
                                     const CompileContext& context) override {
    make_current();
    return layer.compile_gpu(context, context_);
  }

  void begin_pass(const PassContext& pass, const GradientScale& scale) override {
    make_current();
    trains_ = pass.training;
    if (!pass.training) return;
    pass_.set({.gradient_factor = static_cast<float>(static_cast<double>(scale.loss_scale) /
                                                     static_cast<double>(scale.divisor))});
    context_.keys().begin(pass);
  }

  void stage(const BatchView& batch) override {
    make_current();
    feed_.stage(batch);
  }
  void load(std::span<LoadedInput> inputs, const BatchView& batch, bool staged) override {
    feed_.load(inputs, batch, staged);
    // A recording with mixup or weights cannot be replayed without them, and vice versa.
    if (const TargetKind kind{feed_.partner_labels(0) != nullptr,
                              feed_.sample_weights(0) != nullptr};
        trains_ && kind != std::exchange(trained_kind_, kind))
      ++placement_;
    // Space for the result of each row, or of each of its values.
    std::size_t width = 0;
    for (std::size_t term = 0; term <= batch.more_targets.size(); ++term) {
      const Targets& targets = batch.targets_of(term);
      width = std::max({width, targets.labels.size(), targets.values.size()});
    }
    if (row_losses_.size() < width * sizeof(cuda::SampleLoss)) {
      context_.stream().synchronize();
      row_losses_ = {};
      row_losses_ = context_.allocator().allocate(width * sizeof(cuda::SampleLoss));
      ++placement_;
    }
  }

  void compute_loss(const TotalLoss& loss, std::size_t term, const TensorView& outputs,
                    std::int64_t samples, const TensorView& gradient,
                    const RowRange& range) override {
    const std::int64_t positions = feed_.positions(term, samples);
    const std::int64_t all_rows = samples * positions;
    const std::int64_t rows = range.count > 0 ? range.count : all_rows;
    const std::int64_t stride = static_cast<std::int64_t>(outputs.size()) / rows;
    const float weight = loss[term].weight;
    const auto from_row = [&](const auto* values) {
      return values == nullptr ? nullptr : values + range.first;
    };
    const cuda::LossArguments arguments{
        .outputs = outputs,
        .gradient = gradient,
        .labels = from_row(feed_.labels(term)),
        .partner_labels = from_row(feed_.partner_labels(term)),
        .weights = from_row(feed_.weights(term)),
        .targets = feed_.values(term),
        .sample_weights = feed_.sample_weights(term),
        .rows_per_weight = all_rows / std::max<std::int64_t>(feed_.sample_weight_count(term), 1),
        .first_row = range.first,
        .gradient_factor = &pass_.data()->gradient_factor,
        .gradient_weight = weight / static_cast<float>(positions),
        .loss_weight = weight * static_cast<float>(feed_.positions(0, samples)) /
                       static_cast<float>(positions),
        .is_first_term = term == 0,
        .row_losses = row_losses_.as<cuda::SampleLoss>().data(),
        .sums = sums_.as<MetricSums>().data(),
        .samples = range.first == 0 ? samples : 0,
        .rows = rows,
        .width = range.width > 0 ? range.width : stride,
        .row_stride = stride};
    cuda::compute_loss(loss[term].loss, arguments, context_.native());
  }

  void write_sums(std::span<float> summable) override {
    cuda::write_summable(sums_.as<MetricSums>().data(), summable.data(), context_.native());
  }
  void clear_sums() override {
    make_current();
    fill(sums_.data(), sizeof(MetricSums));
  }
  void fetch_sums() override {
    device::copy(fetched_.data(), sums_.data(), sizeof(MetricSums), context_.stream());
  }
  MetricSums read_sums() override { return fetched_.as<MetricSums>().front(); }

  std::uint64_t placement() const override { return placement_ + feed_.placement(); }

  void accumulate(const TensorView& target, const TensorView& addend) override {
    cuda::add(target, addend, false, target, context_.native());
  }
  void copy(const TensorView& target, const TensorView& source) override {
    device::copy(target.data(), source.data(), target.size_bytes(), context_.stream());
  }
  void fill_with_zeros(const TensorView& target) override {
    fill(target.data(), target.size_bytes());
  }
  void narrow(const TensorView& target, std::span<const float> source) override {
    make_current();
    cuda::convert(TensorView::reading(source), target, context_.native());
  }
  void widen(std::span<const Widening> arrays) override {
    cuda::widen_all(arrays, precision(), context_.native());
  }
  std::unique_ptr<Updater> updater(const OptimizerOptions& options, const ParameterTable& table,
                                   const UpdateArrays& arrays) override {
    make_current();
    return cuda::make_updater(context_, options, table, arrays);
  }
  void read(const TensorView& source, std::span<float> target) override {
    const device::Buffer wide = context_.allocator().allocate(target.size_bytes());
    cuda::convert(source, wide.as<float>(), context_.native());
    device::copy(target.data(), wide.data(), target.size_bytes(), context_.stream());
    context_.stream().synchronize();
  }

 private:
  // Kernels run on the calling thread's current GPU; a thread drives one replica at a time.
  void make_current() const { device::cuda::check(cudaSetDevice(context_.gpu()), name()); }

  void fill(void* data, std::size_t bytes) {
    if (bytes > 0) device::cuda::check(cudaMemsetAsync(data, 0, bytes, context_.native()), "zeros");
  }

  Context context_;
  cuda::StagedValue<PassNumbers> pass_;
  cuda::InputFeed feed_;
  device::Buffer row_losses_;
  device::Buffer sums_;
  device::Buffer fetched_;  // page-locked
  std::uint64_t placement_ = 0;
  bool trains_ = false;      // in the current pass
  TargetKind trained_kind_;  // targets of the previous training pass
};

}  // namespace

std::unique_ptr<Backend> make_gpu_backend(device::Device device, const ComputeOptions& options,
                                          const ComputeHooks& hooks) {
  return std::make_unique<CudaBackend>(device.index, options, hooks);
}

}  // namespace lockstep::inline v0::model
