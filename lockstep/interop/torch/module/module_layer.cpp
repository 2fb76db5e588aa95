#include "lockstep/interop/torch/module/module_layer.h"

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "lockstep/interop/torch/module/module_operation.h"
#include "lockstep/interop/torch/module/replicated_module.h"
#include "lockstep/interop/torch/module/script_module.h"
#include "lockstep/interop/torch/runtime.h"
#include "lockstep/model/layer/backend.h"

namespace lockstep::inline v0::torch {
namespace {

/// Whether float32 represents its values exactly, such as whole numbers up to 2^24.
bool is_exact_as_float(const at::Tensor& tensor) {
  return tensor.to(at::kFloat).to(tensor.scalar_type()).equal(tensor);
}

model::Shape shape_of(const at::Tensor& tensor) {
  return tensor.dim() == 0 ? model::Shape{1} : tensor.sizes().vec();
}

/// Throws Error for a parameter that the layer cannot store.
void check_layer_parameter(const model::BuildContext& context, const std::string& name,
                           const at::Tensor& parameter, const ModuleOptions& options) {
  const auto got = [&] {
    return fmt::format("got {}, {} on {}", name, c10::toString(parameter.scalar_type()),
                       parameter.device().str());
  };
  if (parameter.is_cpu() && parameter.scalar_type() == at::kFloat) return;
  if (!parameter.is_cpu() || parameter.scalar_type() != at::kDouble)
    context.refuse("expected parameters of type float32 or float64 on the CPU", got());
  if (!options.float64)
    context.refuse(
        "expected parameters of type float32. A Trainer keeps float32: with ModuleOptions::float64 "
        "the module computes in float64 on values that are rounded to it; "
        "DistributedDataParallel, in a custom training loop, keeps float64",
        got());
}

}  // namespace

/// Shared by the copies of a layer, in all networks and replicas.
struct ModuleLayer::State {
  Factory make;
  ModuleOptions options;
  std::atomic<bool> draws = false;  // forward draws random numbers in training
  std::mutex mutex;
  std::optional<std::uint64_t> seed;  // seed of `initial`
  std::vector<at::Tensor> initial;    // initial values of parameters, then of buffers
  // The module of each replica and layer, while a compiled model uses it.
  std::map<std::pair<const model::Backend*, std::string>, std::weak_ptr<ReplicatedModule>>
      replicated;

  /// Writes the initial values of tensor `index` of a module created after seeding.
  void draw(std::size_t index, std::uint64_t with_seed, std::span<float> values) {
    const std::scoped_lock lock(mutex);
    const c10::NoGradGuard no_graph;
    if (seed != with_seed) {
      const SeededGenerator generator(with_seed);
      const ModuleTensors tensors(make());
      initial.clear();
      for (const auto& pairs : {tensors.parameters, tensors.buffers})
        for (const auto& [name, tensor] : pairs) initial.push_back(tensor.to(at::kFloat));
      seed = with_seed;
    }
    write(initial.at(index), values);
  }

  std::shared_ptr<ReplicatedModule> of_replica(const model::Backend& backend,
                                               const std::string& node) {
    const std::scoped_lock lock(mutex);
    std::weak_ptr<ReplicatedModule>& place = replicated[{&backend, node}];
    std::shared_ptr<ReplicatedModule> module = place.lock();
    if (!module) {
      const SeededGenerator generator(0);
      module = std::make_shared<ReplicatedModule>(make(), options);
      place = module;
    }
    return module;
  }
};

ModuleLayer::ModuleLayer(Factory make, const ModuleOptions& options)
    : state_(std::make_shared<State>()) {
  state_->make = std::move(make);
  state_->options = options;
}

ModuleLayer::ModuleLayer(const std::filesystem::path& script, const ModuleOptions& options)
    : ModuleLayer(Factory([script] { return load_script(script); }), options) {
  static_cast<void>(load_script(script));  // reports errors early
}

ModuleLayer::ModuleLayer(std::shared_ptr<const std::string> content, const std::string& name,
                         const ModuleOptions& options)
    : ModuleLayer(Factory([content, name] { return load_script(*content, name); }), options) {
  static_cast<void>(load_script(*content, name));
}

model::Shape ModuleLayer::build(model::BuildContext& context) const {
  SeededGenerator generator(0);
  const AnyModule module = state_->make();
  const ModuleTensors tensors(module);
  std::size_t index = 0;
  const auto initializer = [&] {
    return model::Initializer{
        .draw = [state = state_, tensor = index++](std::uint64_t seed, std::span<float> values) {
          state->draw(tensor, seed, values);
        }};
  };
  // Biases, and the scales of normalizations, do not decay.
  for (const auto& [name, tensor] : tensors.parameters) {
    check_layer_parameter(context, name, tensor, state_->options);
    context.parameter(name, shape_of(tensor), initializer(), tensor.dim() > 1);
  }
  for (const auto& [name, tensor] : tensors.buffers) {
    const bool may_round = state_->options.float64 && tensor.is_floating_point();
    if (!may_round && !is_exact_as_float(tensor))
      context.refuse("expected buffers whose values float32 represents exactly",
                     fmt::format("got {}, {}", name, c10::toString(tensor.scalar_type())));
    context.buffer(name, shape_of(tensor), initializer());
  }

  constexpr std::int64_t kSamples = 2;  // batch normalization in training rejects a single sample
  std::vector<at::Tensor> inputs;
  for (const model::Shape& shape : context.inputs()) {
    std::vector<std::int64_t> sizes = {kSamples};
    std::ranges::copy(shape, std::back_inserter(sizes));
    const bool are_indices = inputs.empty() && state_->options.index_count > 0;
    inputs.push_back(at::zeros(sizes, are_indices ? at::kLong : at::kFloat));
  }
  at::Tensor output;
  try {
    const c10::NoGradGuard no_graph;
    ReplicatedModule trial(module, state_->options);
    output = trial.forward(inputs, false);
    generator.seed(0);
    trial.forward(inputs, true);
    state_->draws = generator.was_used();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    context.refuse("expected a module that computes inputs of these shapes", reason(error));
  }
  const bool fits = output.scalar_type() == at::kFloat ||
                    (state_->options.float64 && output.scalar_type() == at::kDouble);
  if (output.dim() < 2 || output.size(0) != kSamples || !fits)
    context.refuse("expected an output [samples, values...] of type float32",
                   fmt::format("got {} of 2 samples, {}", model::to_string(output.sizes().vec()),
                               c10::toString(output.scalar_type())));
  return {output.sizes().begin() + 1, output.sizes().end()};
}

std::unique_ptr<model::Operation> ModuleLayer::compile(const model::CompileContext& context,
                                                       model::Backend& backend) const {
  const std::string where = fmt::format("layer {} (torch)", context.name);
  if (!backend.runs_on_host())
    throw Error(ErrorCategory::device, where, "expected a CPU replica for a LibTorch module",
                fmt::format("got {}", backend.name()));
  if (backend.precision() != model::Precision::float32)
    throw Error(ErrorCategory::input, where, "expected float32 for a LibTorch module",
                fmt::format("got {}", to_string(backend.precision())));
  share_thread_budget();
  return std::make_unique<ModuleOperation>(state_->of_replica(backend, context.name), context,
                                           state_->draws, state_->options.index_count > 0);
}

model::Traits ModuleLayer::traits() const {
  return {.keeps_buffers_if_frozen = true, .index_count = state_->options.index_count};
}

}  // namespace lockstep::inline v0::torch
