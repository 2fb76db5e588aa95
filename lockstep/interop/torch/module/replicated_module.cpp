#include "lockstep/interop/torch/module/replicated_module.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace lockstep::inline v0::torch {
namespace {

using Flat = ReplicatedModule::Flat;

/// Turns the float32 tensors into views of `arrays`.
void make_views(NamedTensors::Pairs& tensors, const Flat& arrays) {
  for (std::size_t i = 0; i < arrays.size(); ++i)
    if (at::Tensor& tensor = tensors[i].second; tensor.scalar_type() == at::kFloat)
      tensor.set_data(view_of(arrays[i], tensor.sizes()));
}

/// Calls copy(tensor, view of its array) for tensors of other types.
template <typename Copy>
void each_copied(NamedTensors::Pairs& tensors, const Flat& arrays, const Copy& copy) {
  for (std::size_t i = 0; i < arrays.size(); ++i)
    if (at::Tensor& tensor = tensors[i].second; tensor.scalar_type() != at::kFloat)
      copy(tensor, view_of(arrays[i], tensor.sizes()));
}

}  // namespace

at::Tensor view_of(std::span<float> values, at::IntArrayRef sizes) {
  return at::from_blob(values.data(), sizes, at::TensorOptions().dtype(at::kFloat));
}

void write(const at::Tensor& from, std::span<float> to) {
  if (!from.defined())
    std::ranges::fill(to, 0.0F);
  else
    view_of(to, from.sizes()).copy_(from.is_sparse() ? from.to_dense() : from);
}

ModuleTensors::ModuleTensors(const AnyModule& module) {
  std::vector<at::Tensor> seen;
  const auto add = [&](const auto& pairs, bool are_parameters) {
    for (const auto& pair : pairs) {
      if (std::ranges::any_of(seen, [&](const auto& it) { return it.is_same(pair.second); }))
        continue;
      seen.push_back(pair.second);
      (are_parameters && pair.second.requires_grad() ? parameters : buffers).push_back(pair);
    }
  };
  add(module.parameters, true);
  add(module.buffers, false);
}

ReplicatedModule::ReplicatedModule(AnyModule module, const ModuleOptions& options)
    : module_(std::move(module)), tensors_(module_), options_(options) {}

void ReplicatedModule::bind(const Flat& parameters, const Flat& buffers) {
  if (!std::exchange(is_bound_, true)) {
    make_views(tensors_.parameters, parameters);
    make_views(tensors_.buffers, buffers);
  }
  const auto copy = [](at::Tensor& mine, const at::Tensor& stored) {
    mine.copy_(mine.is_floating_point() ? stored : stored.round());
  };
  each_copied(tensors_.parameters, parameters, copy);
  each_copied(tensors_.buffers, buffers, copy);
}

void ReplicatedModule::store(const Flat& buffers) {
  each_copied(tensors_.buffers, buffers,
              [](const at::Tensor& mine, at::Tensor stored) { stored.copy_(mine); });
}

at::Tensor ReplicatedModule::forward(std::vector<at::Tensor> inputs, bool training) {
  if (std::exchange(trains_, training) != training) module_.train(training);
  for (at::Tensor& input : inputs) {
    if (options_.channels_first && input.dim() == 4)
      input = input.permute({0, 3, 1, 2}).contiguous();
    if (options_.float64 && input.is_floating_point()) input = input.to(at::kDouble);
  }
  at::Tensor output = module_.forward(inputs);
  if (output.dim() == 1) output = output.unsqueeze(1);
  if (options_.channels_first && output.dim() == 4) output = output.permute({0, 2, 3, 1});
  return output;
}

}  // namespace lockstep::inline v0::torch
