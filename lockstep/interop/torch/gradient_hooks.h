// Autograd hooks for the start of a backward pass, each complete gradient, and the end of the pass.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep::inline v0::torch {

/// Receives the events. Exceptions that it throws propagate out of backward().
class BackwardListener {
 public:
  virtual ~BackwardListener() = default;
  /// Called before the first gradient of the pass is accumulated. Returns whether to accumulate:
  /// false leaves every grad() unchanged.
  virtual bool backward_begins() = 0;
  /// Called when the gradient of a parameter, by index, is in its grad(), if the pass computed one.
  virtual void gradient_ready(std::size_t parameter) = 0;
  /// Called before backward() returns.
  virtual void backward_ends() = 0;
};

/// Hooks on the graph nodes that accumulate gradients in parameters; the destructor removes them. A
/// backward pass that reaches none of the parameters causes no event. A pass that ends with an
/// exception has no end event.
class GradientHooks {
 public:
  /// `parameters` are leaves that require gradients. `listener` must outlive this object.
  GradientHooks(const std::vector<at::Tensor>& parameters, BackwardListener& listener);
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;
  ~GradientHooks();

  /// The index of the first parameter whose hooks were lost, if any: a change of its type or device
  /// replaces its node.
  std::optional<std::size_t> first_lost() const;

 private:
  class Before;
  class After;
  /// The type of shared pointer depends on the version of LibTorch.
  using NodePointer =
      decltype(::torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));

  void before();
  void ended();

  BackwardListener& listener_;
  bool in_pass_ = false;
  bool adds_ = true;  // whether the pass accumulates gradients
  struct Hook {
    at::Tensor parameter = {};
    NodePointer node = {};  // keeps the node alive: autograd holds it only while a graph needs it
    ::torch::autograd::FunctionPreHook* before = nullptr;
    std::uintptr_t after = 0;
  };
  std::vector<Hook> hooks_;
};

}  // namespace lockstep::inline v0::torch
