// Watches autograd: when a backward pass begins, when a parameter's gradient is complete, when the pass ends.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep::torch {

/// Who is told. What it throws leaves backward().
class BackwardListener {
 public:
  virtual ~BackwardListener() = default;
  /// Before the first gradient of the pass is added to where gradients lie.
  virtual void backward_begins() = 0;
  /// The gradient of a parameter, by number, is in its grad().
  virtual void gradient_ready(std::size_t parameter) = 0;
  /// Before backward() returns.
  virtual void backward_ends() = 0;
};

/// Hooks on the nodes of the graph that add gradients to parameters, removed with this object. A backward pass that
/// reaches none of the parameters is not seen.
class GradientHooks {
 public:
  /// `parameters` are leaves that require gradients; `listener` outlives this object.
  GradientHooks(const std::vector<at::Tensor>& parameters, BackwardListener& listener);
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;
  ~GradientHooks();

  /// Forgets a pass that an exception has ended.
  void forget_pass() { in_pass_ = false; }

 private:
  class Before;
  class After;
  /// A shared pointer of one kind or another, as the version of LibTorch has it.
  using NodePointer = decltype(::torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));

  void before();
  void ended();

  BackwardListener& listener_;
  bool in_pass_ = false;
  struct Hook {
    NodePointer node = {};  // autograd itself keeps it only while a graph needs it
    ::torch::autograd::FunctionPreHook* before = nullptr;
    std::uintptr_t after = 0;
  };
  std::vector<Hook> hooks_;
};

}  // namespace lockstep::torch
