#include "lockstep/interop/torch/module/script_module.h"

#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/script.h>

#include <memory>
#include <sstream>
#include <vector>

#include "lockstep/interop/torch/runtime.h"

namespace lockstep::inline v0::torch {
namespace {

/// `load` returns the module.
template <typename Load>
AnyModule any_module(const std::string& name, const Load& load) {
  const auto module = std::make_shared<::torch::jit::Module>(
      rethrow_as_error(name, "expected a TorchScript file", ErrorCategory::data, load));
  const auto pairs = [](const auto& list) {
    NamedTensors::Pairs named;
    for (const auto& item : list) named.emplace_back(item.name, item.value);
    return named;
  };
  return {.parameters = pairs(module->named_parameters()),
          .buffers = pairs(module->named_buffers()),
          .forward =
              [module](const std::vector<at::Tensor>& inputs) {
                // An optimized graph computes in another order in its first passes than later.
                const ::torch::jit::GraphOptimizerEnabledGuard as_written(false);
                return module->forward(std::vector<c10::IValue>(inputs.begin(), inputs.end()))
                    .toTensor();
              },
          .train = [module](bool training) { module->train(training); }};
}

}  // namespace

AnyModule load_script(const std::filesystem::path& script) {
  return any_module(script.string(), [&] { return ::torch::jit::load(script.string()); });
}

AnyModule load_script(const std::string& content, const std::string& name) {
  return any_module(name, [&] {
    std::istringstream stream(content);
    return ::torch::jit::load(stream);
  });
}

}  // namespace lockstep::inline v0::torch
