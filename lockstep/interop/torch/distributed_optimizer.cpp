#include "lockstep/interop/torch/distributed_optimizer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/serialize.h>

#include <sstream>
#include <unordered_set>

#include "lockstep/base/error.h"
#include "lockstep/interop/check_together.h"
#include "lockstep/interop/torch/exchange.h"

namespace lockstep::inline v0::torch {
namespace {

constexpr const char* kInOptimizer = "distributed_optimizer";

/// The number of parameters in each group.
std::vector<std::size_t> group_sizes(const ::torch::optim::Optimizer& optimizer) {
  std::vector<std::size_t> sizes;
  for (const auto& group : optimizer.param_groups()) sizes.push_back(group.params().size());
  return sizes;
}

/// Checks that `parameters` has all parameters of the optimizer and no others. A tensor with two
/// names may be in the optimizer twice.
void check_names(const ::torch::optim::Optimizer& optimizer, const NamedTensors& parameters) {
  std::unordered_set<const void*> named, updated;
  for (const auto& [name, tensor] : parameters.pairs()) named.insert(tensor.unsafeGetTensorImpl());
  std::size_t number = 0;
  for (const auto& group : optimizer.param_groups())
    for (const at::Tensor& parameter : group.params()) {
      if (!named.contains(parameter.unsafeGetTensorImpl()))
        throw Error(ErrorCategory::input, kInOptimizer,
                    "expected a name for each parameter of the optimizer",
                    fmt::format("its parameter {} of shape {} is not among the named parameters",
                                number, fmt::join(parameter.sizes().vec(), " x ")));
      updated.insert(parameter.unsafeGetTensorImpl());
      ++number;
    }
  for (const auto& [name, tensor] : parameters.pairs())
    if (tensor.requires_grad() && !updated.contains(tensor.unsafeGetTensorImpl()))
      throw Error(ErrorCategory::input, kInOptimizer, "expected only parameters of the optimizer",
                  fmt::format("{} is not one of them", name));
}

void check_kind(const ::torch::optim::Optimizer& optimizer) {
  if (dynamic_cast<const ::torch::optim::LBFGS*>(&optimizer) != nullptr)
    throw Error(ErrorCategory::input, kInOptimizer,
                "expected an optimizer whose step() only updates",
                "LBFGS evaluates losses in step(), where ranks cannot stay synchronized");
}

std::string options_key(std::size_t group) { return fmt::format("options_{}", group); }

/// The state of an optimizer and the options of its groups, which its own load() ignores in some
/// versions.
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

// Removes all previous state, including that of parameters that are not in the archive.
void deserialize(const std::string& bytes, ::torch::optim::Optimizer& optimizer,
                 c10::Device device) {
  std::istringstream stream(bytes);
  ::torch::serialize::InputArchive archive;
  archive.load_from(stream, device);
  optimizer.state().clear();
  ::torch::serialize::InputArchive state;
  archive.read("state", state);
  optimizer.load(state);
  for (const auto& [parameter, kept] : optimizer.state())
    if (kept == nullptr)
      throw Error(
          ErrorCategory::input, kInOptimizer, "expected each parameter only once in the optimizer",
          "LibTorch restores the state of a repeated parameter only for its first occurrence");
  for (std::size_t group = 0; group < optimizer.param_groups().size(); ++group) {
    ::torch::serialize::InputArchive options;
    archive.read(options_key(group), options);
    optimizer.param_groups()[group].options().serialize(options);
  }
}

NamedTensors checked(job::Workers& workers, ::torch::optim::Optimizer& optimizer,
                     const NamedTensors& parameters) {
  interop::check_together(workers, kInOptimizer, [&] {
    check_kind(optimizer);
    check_names(optimizer, parameters);
    return std::string();
  });
  return parameters;
}

}  // namespace

OptimizerExchange::OptimizerExchange(job::Workers& workers, ::torch::optim::Optimizer& optimizer,
                                     const NamedTensors& parameters,
                                     const interop::ReducerOptions& options)
    : optimizer_(optimizer),
      gradients_(workers, checked(workers, optimizer, parameters), options,
                 {.where = kInOptimizer,
                  .unchanged = "from backward() to step(): call synchronize() before changing them "
                               "and zero_grad() after step()",
                  .plan = [this] { return PassPlan{samples_}; }}),
      group_sizes_(group_sizes(optimizer)) {}

void OptimizerExchange::broadcast_parameters(int root) {
  gradients_.reducer().require_between_steps("broadcast_parameters()");
  broadcast_tensors(gradients_.reducer().workers(), gradients_.parameters(), root);
}

void OptimizerExchange::broadcast_optimizer_state(int root) {
  gradients_.reducer().require_between_steps("broadcast_optimizer_state()");
  job::Workers& workers = gradients_.reducer().workers();
  interop::check_together(workers, kInOptimizer, [&] {
    return fmt::format("parameter groups of {}", fmt::join(group_sizes(optimizer_), ", "));
  });
  const c10::Device device = gradients_.parameters().front().second.device();
  broadcast_archive(
      workers, kInOptimizer, root, [&] { return serialize(optimizer_); },
      [&](const std::string& bytes) { deserialize(bytes, optimizer_, device); });
}

// A parameter added later has no hooks, so each rank would update it with its own gradient.
void OptimizerExchange::require_same_groups() {
  if (const std::vector<std::size_t> sizes = group_sizes(optimizer_); sizes != group_sizes_)
    gradients_.usage_error("expected the parameters that the optimizer had when it was wrapped",
                           fmt::format("it had groups of {} and now has groups of {}",
                                       fmt::join(group_sizes_, ", "), fmt::join(sizes, ", ")));
}

bool OptimizerExchange::step() {
  require_same_groups();
  if (!gradients_.reducer().is_reduced()) gradients_.reduce();
  return update();
}

bool OptimizerExchange::flush() {
  require_same_groups();
  return gradients_.reduce_partial() && update();
}

bool OptimizerExchange::update() {
  interop::GradientReducer& reducer = gradients_.reducer();
  const bool is_applied = reducer.samples() > 0 && !reducer.must_skip();
  if (is_applied) optimizer_.step();
  reducer.applied();
  return is_applied;
}

}  // namespace lockstep::inline v0::torch
