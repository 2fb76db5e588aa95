#include "tests/model/support/reference_training.h"

#include <gtest/gtest.h>

#include <utility>

#include "lockstep/base/system/host.h"
#include "lockstep/device/gpu.h"
#include "lockstep/model/layer/backend.h"

namespace lockstep::inline v0::model {

ReferenceTraining::ReferenceTraining(
    Network network, device::DeviceKind kind,
    const std::function<void(const ParameterInfo&, std::span<float>)>& fill)
    : allocator_(kind == device::DeviceKind::gpu ? device::make_gpu_allocator(0)
                                                 : std::make_unique<device::HostAllocator>()),
      model_(std::make_shared<const Network>(std::move(network)), device::Device{kind, 0},
             *allocator_, {.deterministic = true}),
      kept_(model_.backend().allocator().allocate(model_.buffers().size_bytes())),
      summable_(model_.backend().allocator().allocate(SummableMetrics::kSize * sizeof(float))) {
  set_thread_budget(1);
  model_.initialize(1);
  device::HostView parameters = view(model_.parameters());
  for (const ParameterInfo& entry : model_.parameter_table().entries())
    fill(entry, ParameterTable::slice(parameters.values(), entry));
  parameters.write_back(model_.backend().stream());
  model_.parameters_changed();
}

device::HostView ReferenceTraining::view(std::span<float> values) {
  return {values, model_.backend().stream()};
}

std::unique_ptr<Updater> ReferenceTraining::updater(const OptimizerOptions& options) {
  return model_.backend().updater(options, model_.parameter_table(),
                                  {.parameters = model_.parameters(),
                                   .gradients = model_.gradients(),
                                   .weights = {},
                                   .statistics = model_.buffers(),
                                   .kept_statistics = kept_.as<float>()});
}

double ReferenceTraining::train(const BatchView& batch) {
  return model_
      .train_batch(batch, {.global_samples = batch.samples}, SparseCategoricalCrossentropy{})
      .loss();
}

void ReferenceTraining::update(Updater& updater, float rate, std::int64_t number) {
  updater.begin({.learning_rate = rate, .update = number});
  model_.backend().write_sums(summable_.as<float>());
  updater.update(summable_.as<float>());
  model_.backend().stream().synchronize();
  EXPECT_TRUE(updater.outcome().applied);
}

}  // namespace lockstep::inline v0::model
