// Compares two devices: one model with equal numbers, and the distance of the results.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/device/gpu.h"
#include "lockstep/device/host_view.h"
#include "lockstep/model/compiled/compiled_model.h"
#include "lockstep/model/layer/backend.h"
#include "tests/model/support/numbers.h"

namespace lockstep::inline v0::model {

using Values = std::vector<float>;

inline constexpr device::Device kGpu{device::DeviceKind::gpu, 0};
inline const Loss kLoss = SparseCategoricalCrossentropy{};

/// One side of a comparison: a model with given numbers, and the results of a pass on a batch.
class Side {
 public:
  Side(device::Device device, std::shared_ptr<const Network> network, const ComputeOptions& options,
       const ComputeHooks& hooks = {})
      : allocator_(device.kind == device::DeviceKind::gpu
                       ? device::make_gpu_allocator(device.index)
                       : std::make_unique<device::HostAllocator>()),
        model_(std::move(network), device, *allocator_, options, hooks) {
    fill(model_.parameter_table(), model_.parameters(), 0);
    fill(model_.buffer_table(), model_.buffers(), 1.25f);
    model_.parameters_changed();
  }

  CompiledModel& model() { return model_; }
  Values values(std::span<float> memory) {
    device::HostView view(memory, model_.backend().stream());
    return {view.values().begin(), view.values().end()};
  }
  Values gradients() { return values(model_.gradients()); }
  Values buffers() { return values(model_.buffers()); }
  /// Multiplies each parameter by a factor between 1 - part and 1 + part.
  void perturb(float part, std::uint64_t seed) {
    device::HostView view(model_.parameters(), model_.backend().stream());
    const Values random = numbers(view.values().size(), seed);
    for (std::size_t i = 0; i < random.size(); ++i) view.values()[i] *= 1 + part * random[i];
    view.write_back(model_.backend().stream());
    model_.parameters_changed();
  }
  /// One step of plain gradient descent.
  void descend(float rate) {
    const Values gradient = gradients();
    device::HostView view(model_.parameters(), model_.backend().stream());
    for (std::size_t i = 0; i < gradient.size(); ++i) view.values()[i] -= rate * gradient[i];
    view.write_back(model_.backend().stream());
    model_.parameters_changed();
  }

 private:
  void fill(const ParameterTable& table, std::span<float> flat, float shift) {
    device::HostView view(flat, model_.backend().stream());
    for (const ParameterInfo& entry : table.entries()) {
      const Values random = numbers(entry.count, 100 + entry.offset);
      std::ranges::transform(random, ParameterTable::slice(view.values(), entry).begin(),
                             [&](float x) { return 0.5f * x + shift; });
    }
    view.write_back(model_.backend().stream());
  }

  std::unique_ptr<device::Allocator> allocator_;
  CompiledModel model_;
};

inline double norm(const Values& values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(sum);
}

/// Distance over norm.
inline double error(const Values& values, const Values& reference) {
  Values difference = values;
  for (std::size_t i = 0; i < reference.size(); ++i) difference[i] -= reference[i];
  return norm(difference) / std::max(norm(reference), 1e-6);
}

/// A batch for a network, and the context of a pass. Indices are below 5.
struct Data {
  std::int64_t samples;
  std::int64_t width;
  Values features = numbers(static_cast<std::size_t>(samples * width), 1);
  std::vector<std::int32_t> classes = labels(static_cast<std::size_t>(samples), 5, 2);
  Values targets = numbers(static_cast<std::size_t>(samples * 5), 3);

  /// The inputs of a network that has others than one of float32; empty otherwise.
  struct Input {
    std::int64_t width;
    Values features;
    std::vector<std::int32_t> indices;
  };
  std::vector<Input> inputs;
  mutable std::vector<InputView> views;

  Data(const Network& network, std::int64_t its_samples)
      : samples(its_samples), width(element_count(network.input_shape())) {
    if (network.inputs().size() == 1 && network.inputs()[0].type == ElementType::float32) return;
    for (const NetworkInput& input : network.inputs()) {
      const std::int64_t input_width = element_count(input.shape);
      const auto count = static_cast<std::size_t>(samples * input_width);
      const std::uint64_t seed = 10 + inputs.size();
      if (input.type == ElementType::int32)
        inputs.push_back({input_width, {}, labels(count, 5, seed)});
      else
        inputs.push_back({input_width, numbers(count, seed), {}});
    }
  }

  /// The samples [first, first + count); with several inputs the view is valid until the next call.
  BatchView part(std::int64_t first, std::int64_t count) const {
    const auto slice = [&](const auto& all, std::int64_t sample_width) {
      return std::span(all).subspan(static_cast<std::size_t>(first * sample_width),
                                    static_cast<std::size_t>(count * sample_width));
    };
    BatchView view{.samples = count, .targets = {.labels = slice(classes, 1), .values = {}}};
    if (inputs.empty()) view.features = slice(features, width);
    views.clear();
    for (const Input& input : inputs)
      if (input.indices.empty())
        views.push_back({.features = slice(input.features, input.width)});
      else
        views.push_back({.indices = slice(input.indices, input.width)});
    view.inputs = views;
    return view;
  }
  BatchView batch_for(const Loss& loss) const {
    BatchView view = part(0, samples);
    if (std::holds_alternative<MeanSquaredError>(loss))
      view.targets = {.labels = {}, .values = targets};
    return view;
  }
  StepContext context(std::int64_t first = 0) const {
    return {.seed = 7, .step = 3, .first_sample = 11 + first, .global_samples = samples + 2};
  }
};

}  // namespace lockstep::inline v0::model
