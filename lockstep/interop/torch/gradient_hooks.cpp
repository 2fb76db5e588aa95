#include "lockstep/interop/torch/gradient_hooks.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>

#include <algorithm>

namespace lockstep::inline v0::torch {

using ::torch::autograd::variable_list;

class GradientHooks::Before final : public ::torch::autograd::FunctionPreHook {
 public:
  explicit Before(GradientHooks& hooks) : hooks_(hooks) {}
  variable_list operator()(const variable_list& gradients) override {
    hooks_.before();
    return hooks_.adds_ ? gradients : variable_list(gradients.size());
  }

 private:
  GradientHooks& hooks_;
};

class GradientHooks::After final : public ::torch::autograd::FunctionPostHook {
 public:
  After(GradientHooks& hooks, std::size_t parameter) : hooks_(hooks), parameter_(parameter) {}
  variable_list operator()(const variable_list& outputs, const variable_list& /*inputs*/) override {
    hooks_.listener_.gradient_ready(parameter_);
    return outputs;
  }

 private:
  GradientHooks& hooks_;
  std::size_t parameter_;
};

GradientHooks::GradientHooks(const std::vector<at::Tensor>& parameters, BackwardListener& listener)
    : listener_(listener) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    Hook& hook = hooks_.emplace_back();
    hook.parameter = parameters[i];
    hook.node = ::torch::autograd::impl::grad_accumulator(parameters[i]);
    auto before = std::make_unique<Before>(*this);
    hook.before = before.get();
    hook.node->add_pre_hook(std::move(before));
    hook.after = hook.node->add_post_hook(std::make_unique<After>(*this, i));
  }
}

GradientHooks::~GradientHooks() {
  for (Hook& hook : hooks_) {
    auto& before = hook.node->pre_hooks();
    std::erase_if(before, [&](const auto& one) { return one.get() == hook.before; });
    hook.node->del_post_hook(hook.after);
  }
}

std::optional<std::size_t> GradientHooks::first_lost() const {
  const auto lost = std::find_if(hooks_.begin(), hooks_.end(), [](const Hook& hook) {
    return ::torch::autograd::impl::try_get_grad_accumulator(hook.parameter) != hook.node;
  });
  if (lost == hooks_.end()) return std::nullopt;
  return static_cast<std::size_t>(lost - hooks_.begin());
}

void GradientHooks::before() {
  if (in_pass_) return;
  in_pass_ = true;
  ::torch::autograd::Engine::get_default_engine().queue_callback([this] { ended(); });
  adds_ = listener_.backward_begins();
}

void GradientHooks::ended() {
  in_pass_ = false;
  listener_.backward_ends();
}

}  // namespace lockstep::inline v0::torch
