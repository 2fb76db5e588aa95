#include "interop/torch/distributed_optimizer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/serialize.h>

#include <sstream>
#include <unordered_map>

#include "device/error.h"
#include "interop/torch/exchange.h"
#include "strategy/wrapper/check_together.h"

namespace lockstep::torch {
namespace {

/// That `parameters` names the optimizer's parameters, each of them and no others.
void check_names(::torch::optim::Optimizer& optimizer, const NamedTensors& parameters) {
  std::unordered_map<const void*, std::string> names;
  for (const auto& [name, tensor] : parameters.pairs()) names.emplace(tensor.unsafeGetTensorImpl(), name);
  std::size_t number = 0;
  for (const auto& group : optimizer.param_groups())
    for (const at::Tensor& parameter : group.params()) {
      if (names.erase(parameter.unsafeGetTensorImpl()) == 0)
        throw Error(ErrorCategory::input, "torch", "needed a name for each parameter of the optimizer",
                    fmt::format("its parameter {} of shape {} is not among the named ones", number,
                                fmt::join(parameter.sizes().vec(), " x ")));
      ++number;
    }
  for (const auto& [name, tensor] : parameters.pairs())
    if (tensor.requires_grad() && names.count(tensor.unsafeGetTensorImpl()) != 0)
      throw Error(ErrorCategory::input, "torch", "needed parameters of the optimizer",
                  fmt::format("{} is none of its parameters", name));
}

std::string options_key(std::size_t group) { return fmt::format("options_{}", group); }

/// What an optimizer keeps, and the options of its groups, which its own load() leaves alone in some versions.
std::string serialize(const ::torch::optim::Optimizer& optimizer) {
  ::torch::serialize::OutputArchive archive;
  ::torch::serialize::OutputArchive state(archive.compilation_unit());
  optimizer.save(state);
  archive.write("state", state);
  for (std::size_t group = 0; group < optimizer.param_groups().size(); ++group) {
    ::torch::serialize::OutputArchive options(archive.compilation_unit());
    optimizer.param_groups()[group].options().serialize(options);
    archive.write(options_key(group), options);
  }
  std::ostringstream stream;
  archive.save_to(stream);
  return stream.str();
}

void deserialize(const std::string& bytes, ::torch::optim::Optimizer& optimizer) {
  std::istringstream stream(bytes);
  ::torch::serialize::InputArchive archive;
  archive.load_from(stream);
  ::torch::serialize::InputArchive state;
  archive.read("state", state);
  optimizer.load(state);
  for (std::size_t group = 0; group < optimizer.param_groups().size(); ++group) {
    ::torch::serialize::InputArchive options;
    archive.read(options_key(group), options);
    optimizer.param_groups()[group].options().serialize(options);
  }
}

NamedTensors checked(strategy::Workers& workers, ::torch::optim::Optimizer& optimizer, const NamedTensors& parameters) {
  strategy::check_together(workers, [&] {
    check_names(optimizer, parameters);
    return std::string();
  });
  return parameters;
}

}  // namespace

OptimizerExchange::OptimizerExchange(strategy::Workers& workers, ::torch::optim::Optimizer& optimizer,
                                     const NamedTensors& parameters, const strategy::ReducerOptions& options)
    : optimizer_(optimizer),
      gradients_(workers, checked(workers, optimizer, parameters), options, [this] { return PassPlan{samples_}; }) {}

void OptimizerExchange::broadcast_parameters(int root) {
  gradients_.reducer().require_between_steps("broadcast_parameters()");
  broadcast_tensors(gradients_.reducer().workers(), gradients_.parameters(), root);
}

void OptimizerExchange::broadcast_optimizer_state(int root) {
  gradients_.reducer().require_between_steps("broadcast_optimizer_state()");
  broadcast_archive(
      gradients_.reducer().workers(), root, [&] { return serialize(optimizer_); },
      [&](const std::string& bytes) { deserialize(bytes, optimizer_); });
}

bool OptimizerExchange::step() {
  if (!gradients_.reducer().is_reduced()) gradients_.reduce();
  return update();
}

bool OptimizerExchange::flush() { return gradients_.reduce_rest() && update(); }

bool OptimizerExchange::update() {
  const bool has_samples = gradients_.reducer().samples() > 0;
  if (has_samples) optimizer_.step();
  gradients_.reducer().applied();
  return has_samples;
}

}  // namespace lockstep::torch
