#include <fmt/format.h>
#include <Eigen/Core>
#include <algorithm>
#include <cstring>
#include <iterator>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/float16.h"
#include "lockstep/base/system/host.h"
#include "lockstep/model/cpu/descriptors.h"
#include "lockstep/model/cpu/float_rows.h"
#include "lockstep/model/cpu/onednn.h"
#include "lockstep/model/layer/backend.h"
#include "lockstep/model/layer/builtin_layer.h"

namespace lockstep::inline v0::model {
namespace {

// The values as float32.
std::span<const float> widened(const TensorView& values, std::vector<float>& scratch) {
  if (values.type() == Precision::float32) return values.as<float>();
  scratch.resize(values.size());
  widen(values.as<BFloat16>(), scratch);
  return scratch;
}

template <typename T>
void add(const TensorView& target, const TensorView& addend) {
  auto* const sum = static_cast<T*>(target.data());
  cpu::add(sum, static_cast<const T*>(addend.data()), std::ssize(target), sum);
}

/// oneDNN's kernels compute only a part of their result with fewer threads than they request. A
/// thread whose budget nobody has set requests all cores, also beyond OMP_THREAD_LIMIT.
void use_available_threads() { set_thread_budget(thread_budget()); }

class CpuBackend final : public Backend {
 public:
  CpuBackend(Precision precision, StatisticsExchange* statistics) : precision_(precision) {
    use_available_threads();
    context_.statistics = statistics;
    if (precision == Precision::bfloat16) context_.type = cpu::memory::data_type::bf16;
  }

  std::string name() const override { return "cpu"; }
  bool runs_on_host() const override { return true; }
  Precision precision() const override { return precision_; }
  device::Allocator& allocator() override { return allocator_; }
  device::Stream& stream() override { return stream_; }

  std::unique_ptr<Operation> compile(const BuiltinLayer& layer,
                                     const CompileContext& context) override {
    return layer.compile_cpu(context, context_);
  }

  void begin_pass(const PassContext& /*pass*/, const GradientScale& scale) override {
    use_available_threads();
    scale_ = scale;
  }

  void load(std::span<LoadedInput> inputs, const BatchView& batch, bool /*staged*/) override {
    targets_.assign(1, batch.targets);
    targets_.insert(targets_.end(), batch.more_targets.begin(), batch.more_targets.end());
    from_pixels_.resize(inputs.size());
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      const InputView input = batch.input(k);
      if (!input.indices.empty()) {
        auto* const indices = const_cast<std::int32_t*>(input.indices.data());  // read only
        inputs[k].indices = {indices, input.indices.size()};
        continue;
      }
      std::span<const float> features = input.features;
      if (!input.pixels.empty()) {
        from_pixels_[k].resize(input.pixels.size());
        pixels_to_features(input.pixels, input.normalization, from_pixels_[k]);
        features = from_pixels_[k];
      }
      if (inputs[k].features.empty())
        inputs[k].features = TensorView::reading(features);
      else
        narrow(inputs[k].features, features);
    }
  }

  void compute_loss(const TotalLoss& loss, std::size_t term, const TensorView& outputs,
                    std::int64_t samples, const TensorView& gradient,
                    const RowRange& rows) override {
    const std::span<const float> values = widened(outputs, wide_outputs_);
    std::vector<float>& wide = rows.count > 0 ? wide_outputs_ : wide_gradient_;
    if (gradient.type() != Precision::float32) wide.resize(gradient.size());
    const std::span<float> target =
        gradient.type() == Precision::float32 ? gradient.as<float>() : std::span<float>(wide);
    const auto weight = static_cast<double>(loss[term].weight);
    const auto positions = static_cast<double>(positions_of(targets_[term], samples));
    const double divisor = static_cast<double>(scale_.divisor) /
                           static_cast<double>(scale_.loss_scale) / weight * positions;
    MetricSums sums = rows.count > 0 ? model::compute_loss(
                                           std::get<SparseCategoricalCrossentropy>(loss[term].loss),
                                           values, rows, samples, targets_[term], divisor, target)
                                     : model::compute_loss(loss[term].loss, values, samples,
                                                           targets_[term], divisor, target);
    sums.loss_sum *= weight * static_cast<double>(positions_of(targets_[0], samples)) / positions;
    if (term == 0)
      sums_ += sums;
    else
      sums_.loss_sum += sums.loss_sum;
    if (gradient.type() != Precision::float32) narrow(gradient, target);
  }

  void write_sums(std::span<float> summable) override {
    SummableMetrics(sums_).write(summable.data());
  }
  void clear_sums() override { sums_ = {}; }
  MetricSums read_sums() override { return sums_; }

  void accumulate(const TensorView& target, const TensorView& addend) override {
    if (target.type() == Precision::float32)
      model::add<float>(target, addend);
    else
      model::add<Eigen::bfloat16>(target, addend);
  }
  void copy(const TensorView& target, const TensorView& source) override {
    if (!target.empty()) std::memcpy(target.data(), source.data(), target.size_bytes());
  }
  void fill_with_zeros(const TensorView& target) override {
    if (!target.empty()) std::memset(target.data(), 0, target.size_bytes());
  }
  void narrow(const TensorView& target, std::span<const float> source) override {
    lockstep::narrow(source, target.as<BFloat16>());
  }
  std::unique_ptr<Updater> updater(const OptimizerOptions& options, const ParameterTable& table,
                                   const UpdateArrays& arrays) override {
    return make_host_updater(options, table, arrays);
  }
  void read(const TensorView& source, std::span<float> target) override {
    std::vector<float> scratch;
    std::ranges::copy(widened(source, scratch), target.begin());
  }

 private:
  Precision precision_;
  device::HostAllocator allocator_;
  device::Stream stream_{device::Device{}};
  cpu::Context context_;
  GradientScale scale_;
  std::vector<Targets> targets_;  // one per loss term
  MetricSums sums_;
  std::vector<std::vector<float>> from_pixels_;  // one per input
  std::vector<float> wide_outputs_;              // for the loss, which is computed in float32
  std::vector<float> wide_gradient_;
};

// oneDNN reports this only for the first convolution that needs it. Checking here yields a better
// message.
void require_bfloat16(const device::Device& device) {
  try {
    const cpu::Context context;
    const auto matrix = cpu::matrix(cpu::memory::data_type::bf16, 16, 16);
    cpu::describe_product(context.engine, {matrix, matrix, matrix}, {});
  } catch (const dnnl::error&) {
    throw Error(
        ErrorCategory::input, "precision",
        fmt::format("expected a processor with AVX-512 for bfloat16 on {}", to_string(device)),
        "this processor does not have it; use float32");
  }
}

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(device::Device device, const ComputeOptions& options,
                                          const ComputeHooks& hooks) {
  const Precision precision = options.precision;
  if (precision == Precision::float16)
    throw Error(ErrorCategory::input, "precision", "expected a GPU for float16",
                fmt::format("got {}; use bfloat16 or float32", to_string(device)));
  if (precision == Precision::bfloat16) require_bfloat16(device);
  return std::make_unique<CpuBackend>(precision, hooks.statistics);
}

}  // namespace lockstep::inline v0::model
