// Watches autograd: when a backward pass begins, when a parameter's gradient is complete, when the pass ends.
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

namespace lockstep::torch {

/// Who is told. What it throws leaves backward().
class BackwardListener {
 public:
  virtual ~BackwardListener() = default;
  /// Before the first gradient of the pass is added to where gradients lie. Whether any is: false leaves every grad()
  /// as it is.
  virtual bool backward_begins() = 0;
  /// The gradient of a parameter, by number, is in its grad(), if the pass gave it one.
  virtual void gradient_ready(std::size_t parameter) = 0;
  /// Before backward() returns.
  virtual void backward_ends() = 0;
};

/// Hooks on the nodes of the graph that add gradients to parameters, removed with this object. A backward pass that
/// reaches none of the parameters is not seen; of one that an exception ends, the end is not.
class GradientHooks {
 public:
  /// `parameters` are leaves that require gradients; `listener` outlives this object.
  GradientHooks(const std::vector<at::Tensor>& parameters, BackwardListener& listener);
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;
  ~GradientHooks();

  /// The number of a parameter to which autograd adds gradients without these hooks, if there is one: a change of its
  /// type or device has made it another node.
  std::optional<std::size_t> first_lost() const;

 private:
  class Before;
  class After;
  /// A shared pointer of one kind or another, as the version of LibTorch has it.
  using NodePointer = decltype(::torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));

  void before();
  void ended();

  BackwardListener& listener_;
  bool in_pass_ = false;
  bool adds_ = true;  // gradients of the pass, to those that are there
  struct Hook {
    at::Tensor parameter = {};
    NodePointer node = {};  // autograd itself keeps it only while a graph needs it
    ::torch::autograd::FunctionPreHook* before = nullptr;
    std::uintptr_t after = 0;
  };
  std::vector<Hook> hooks_;
};

}  // namespace lockstep::torch
