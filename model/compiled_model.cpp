#include "model/compiled_model.h"

#include <algorithm>

#include "device/error.h"
#include "model/backend.h"
#include "model/plan.h"

namespace lockstep::model {
namespace {

device::Buffer allocate_floats(device::Allocator& allocator, std::size_t count) {
  return allocator.allocate(count * sizeof(float));
}

void fill_initial(const ParameterTable& table, std::uint64_t seed, std::span<float> flat) {
  std::ranges::fill(flat, 0.0f);
  for (const ParameterInfo& entry : table.entries())
    initialize(entry.initializer, seed, entry.name, ParameterTable::slice(flat, entry));
}

}  // namespace

CompiledModel::CompiledModel(std::shared_ptr<const Network> network, device::Device device,
                             device::Allocator& gradients)
    : network_(std::move(network)), backend_(make_backend(device)) {
  if (network_->nodes().empty())
    throw Error(ErrorCategory::input, network_->name(), "needed a network of at least one layer", "got none");
  parameters_ = allocate_floats(backend_->allocator(), parameter_table().flat_size());
  buffers_ = allocate_floats(backend_->allocator(), buffer_table().flat_size());
  gradients_ = allocate_floats(gradients, parameter_table().flat_size());
}

CompiledModel::~CompiledModel() = default;
CompiledModel::CompiledModel(CompiledModel&&) noexcept = default;

void CompiledModel::initialize(std::uint64_t seed) {
  fill_initial(parameter_table(), seed, parameters());
  fill_initial(buffer_table(), seed, buffers());
}

Plan& CompiledModel::plan(std::int64_t samples, bool training) {
  std::unique_ptr<Plan>& plan = plans_[{samples, training}];
  if (!plan) {
    plan = std::make_unique<Plan>(*network_, *backend_, samples, training, parameters(), buffers());
    if (plan->arena_bytes() > arena_.size() || !arena_.data()) {
      arena_ = {};  // free first: both at once might not fit
      arena_ = backend_->allocator().allocate(std::max<std::size_t>(plan->arena_bytes(), 64));
      for (const auto& [key, other] : plans_)
        if (other) other->bind(static_cast<std::byte*>(arena_.data()));
    } else {
      plan->bind(static_cast<std::byte*>(arena_.data()));
    }
  }
  return *plan;
}

void CompiledModel::prepare(std::int64_t samples, bool training) {
  if (samples > 0) plan(samples, training);
}

MetricSums CompiledModel::train_batch(const BatchView& batch, const StepContext& context, const Loss& loss,
                                      bool accumulate, const GradientReady& ready) {
  const std::size_t parameters_count = parameter_table().entries().size();
  if (batch.samples == 0) {
    if (!accumulate) std::ranges::fill(gradients(), 0.0f);
    for (std::size_t p = 0; ready && p < parameters_count; ++p) ready(p);
    return {};
  }
  Plan& active = plan(batch.samples, true);
  const PassContext pass{
      .training = true, .seed = context.seed, .step = context.step, .first_sample = context.first_sample};
  active.forward(batch.features, pass);
  const MetricSums sums = compute_loss(loss, active.output(), batch.samples, batch.targets, context.global_samples,
                                       active.output_gradient());
  if (!accumulate) {
    active.backward(pass, gradients(), ready);
    return sums;
  }
  if (micro_gradients_.size() == 0)
    micro_gradients_ = allocate_floats(backend_->allocator(), parameter_table().flat_size());
  const auto micro = micro_gradients_.as<float>();
  active.backward(pass, micro, [&](std::size_t parameter) {
    const ParameterInfo& entry = parameter_table().entries()[parameter];
    backend_->accumulate(ParameterTable::slice(gradients(), entry), ParameterTable::slice(micro, entry));
    if (ready) ready(parameter);
  });
  return sums;
}

MetricSums CompiledModel::evaluate_batch(const BatchView& batch, const Loss& loss) {
  if (batch.samples == 0) return {};
  const auto outputs = predict_batch(batch.samples, batch.features);
  return compute_loss(loss, outputs, batch.samples, batch.targets, batch.samples, {});
}

std::span<const float> CompiledModel::predict_batch(std::int64_t samples, std::span<const float> features) {
  if (samples == 0) return {};
  Plan& active = plan(samples, false);
  active.forward(features, PassContext{});
  return active.output();
}

std::size_t CompiledModel::memory_bytes() const {
  return parameters_.size() + gradients_.size() + buffers_.size() + micro_gradients_.size() + arena_.size();
}

}  // namespace lockstep::model
