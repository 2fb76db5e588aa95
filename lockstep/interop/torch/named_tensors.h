// Named tensors, the parameter type of the wrappers.
#pragma once

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/ordered_dict.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::torch {

/// Tensors with names, in the order of the forward pass: the result of Module::named_parameters(),
/// or pairs from several modules.
class NamedTensors {
 public:
  using Pairs = std::vector<std::pair<std::string, at::Tensor>>;  ///< Names and tensors, in order.

  /// Converts a list of pairs.
  NamedTensors(Pairs pairs) : pairs_(std::move(pairs)) {}  // NOLINT(google-explicit-constructor)
  /// Converts the result of named_parameters() or named_buffers().
  NamedTensors(const ::torch::OrderedDict<std::string, at::Tensor>&
                   tensors) {  // NOLINT(google-explicit-constructor)
    for (const auto& item : tensors) pairs_.emplace_back(item.key(), item.value());
  }

  /// The pairs, in order.
  const Pairs& pairs() const { return pairs_; }
  /// The tensor called `name`. Throws Error (input) that lists the names if there is none.
  const at::Tensor& at(std::string_view name) const {
    for (const auto& pair : pairs_)
      if (pair.first == name) return pair.second;
    std::vector<std::string> names;
    for (const auto& pair : pairs_) names.push_back(pair.first);
    throw Error(ErrorCategory::input, "tensors",
                fmt::format("expected one of {}", fmt::join(names, ", ")),
                fmt::format("got {}", name));
  }

 private:
  Pairs pairs_;
};

}  // namespace lockstep::inline v0::torch
