#include "tests/model/support/trial.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "lockstep/base/error.h"
#include "lockstep/base/system/host.h"
#include "tests/model/support/numbers.h"

namespace lockstep::inline v0::model {
namespace {

const ParameterInfo& entry_of(const ParameterTable& table, std::string_view name) {
  const ParameterInfo* entry = table.find(name);
  if (entry == nullptr) throw std::out_of_range("no parameter or buffer " + std::string(name));
  return *entry;
}

std::size_t elements(std::int64_t samples, const Shape& shape) {
  return static_cast<std::size_t>(samples * element_count(shape));
}

}  // namespace

Trial::Trial(Network network, std::int64_t samples, std::uint64_t seed, Precision precision)
    : samples_(samples),
      model_(std::make_shared<const Network>(std::move(network)), device::Device{}, allocator_,
             {.precision = precision}),
      features_(numbers(elements(samples, model_.network().input_shape()), seed)),
      indices_(labels(elements(samples, model_.network().input_shape()), 5, seed)),
      targets_(numbers(elements(samples, model_.network().output_shape()), seed + 1)) {
  set_thread_budget(1);  // threads do not pay off for networks of this size
  for (const ParameterInfo& entry : model_.parameter_table().entries())
    std::ranges::copy(numbers(entry.count, seed + 100 + entry.offset),
                      parameter(entry.name).begin());
  for (const ParameterInfo& entry : model_.buffer_table().entries())
    std::ranges::transform(numbers(entry.count, seed + 200 + entry.offset),
                           buffer(entry.name).begin(), [](float x) { return 1.25f + x; });
  model_.parameters_changed();
}

std::span<float> Trial::parameter(std::string_view name) {
  return ParameterTable::slice(model_.parameters(), entry_of(model_.parameter_table(), name));
}
std::span<float> Trial::gradient(std::string_view name) {
  return ParameterTable::slice(model_.gradients(), entry_of(model_.parameter_table(), name));
}
std::span<float> Trial::buffer(std::string_view name) {
  return ParameterTable::slice(model_.buffers(), entry_of(model_.buffer_table(), name));
}

BatchView Trial::batch() const {
  BatchView batch{.samples = samples_, .targets = {.labels = {}, .values = targets_}};
  if (network().inputs().front().type == ElementType::int32)
    batch.indices = indices_;
  else
    batch.features = features_;
  return batch;
}

MetricSums Trial::train(StepContext context) {
  if (context.global_samples == 0) context.global_samples = samples_;
  return model_.train_batch(batch(), context, MeanSquaredError{});
}

MetricSums Trial::evaluate() { return model_.evaluate_batch(batch(), MeanSquaredError{}); }

std::vector<float> Trial::predict() {
  const auto outputs = model_.predict_batch(batch());
  return {outputs.begin(), outputs.end()};
}

void expect_gradients_match_differences(const Network& network, const GradientCheck& check) {
  try {
    check_gradients(network, check);
  } catch (const Error& error) {
    ADD_FAILURE() << error.what();
  }
}

}  // namespace lockstep::inline v0::model
