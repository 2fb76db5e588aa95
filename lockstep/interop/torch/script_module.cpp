#include "lockstep/interop/torch/script_module.h"

#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/script.h>

#include <memory>
#include <vector>

#include "lockstep/interop/torch/runtime.h"

namespace lockstep::torch {

AnyModule load_script(const std::filesystem::path& script) {
  const auto module = std::make_shared<::torch::jit::Module>(
      told(script.string(), "expected a TorchScript file", ErrorCategory::data,
           [&] { return ::torch::jit::load(script.string()); }));
  const auto pairs = [](const auto& list) {
    NamedTensors::Pairs named;
    for (const auto& item : list) named.emplace_back(item.name, item.value);
    return named;
  };
  return {.parameters = pairs(module->named_parameters()),
          .buffers = pairs(module->named_buffers()),
          .forward =
              [module](const std::vector<at::Tensor>& inputs) {
                // The first passes of an optimized graph compute in another order than later ones.
                const ::torch::jit::GraphOptimizerEnabledGuard as_written(false);
                return module->forward(std::vector<c10::IValue>(inputs.begin(), inputs.end()))
                    .toTensor();
              },
          .train = [module](bool training) { module->train(training); }};
}

}  // namespace lockstep::torch
