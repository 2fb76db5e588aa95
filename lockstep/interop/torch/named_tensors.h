// Parameters of a module as the wrappers take them.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/ordered_dict.h>

#include <string>
#include <utility>
#include <vector>

namespace lockstep::torch {

/// Tensors with names, in the order of the forward pass: what Module::named_parameters() gives, or pairs put together
/// from several modules.
class NamedTensors {
 public:
  using Pairs = std::vector<std::pair<std::string, at::Tensor>>;  ///< Names and tensors, in order.

  /// As they are.
  NamedTensors(Pairs pairs) : pairs_(std::move(pairs)) {}  // NOLINT(google-explicit-constructor)
  /// Of what named_parameters() and named_buffers() give.
  NamedTensors(const ::torch::OrderedDict<std::string, at::Tensor>& tensors) {  // NOLINT(google-explicit-constructor)
    for (const auto& item : tensors) pairs_.emplace_back(item.key(), item.value());
  }

  /// In order.
  const Pairs& pairs() const { return pairs_; }

 private:
  Pairs pairs_;
};

}  // namespace lockstep::torch
