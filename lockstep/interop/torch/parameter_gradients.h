// What both wrappers do: gradients of LibTorch's parameters on their way through a GradientReducer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/interop/gradient_reducer.h"
#include "lockstep/interop/torch/gradient_device.h"
#include "lockstep/interop/torch/gradient_hooks.h"
#include "lockstep/interop/torch/named_tensors.h"

namespace lockstep::torch {

/// How the next backward pass counts.
struct PassPlan {
  double samples = 1;                ///< of this rank in the pass
  std::optional<bool> is_last = {};  ///< see GradientReducer::begin_pass
};

/// Whose gradients they are.
struct GradientOwner {
  std::string where;                 ///< what errors name: "distributed_optimizer"
  std::string unchanged;             ///< how long gradients stay as the backward pass left them, by its calls
  std::function<PassPlan()> plan;    ///< asked at the start of each backward pass
  std::function<void()> ended = {};  ///< called at its end, before backward() returns
};

/// Gradients of the parameters that require them, float32 and all on one device. Autograd hands each over as a tensor
/// of its own, which is copied into the reducer's memory and replaced by a view of it; a gradient that is there
/// already, from an earlier pass, is added to in place. While backward goes on, buckets that are complete are reduced
/// where a wire lies between ranks. Sparse gradients become dense.
///
/// With one rank and nothing to clip, gradients stay where autograd puts them; only passes over different numbers of
/// samples are put in proportion there.
///
/// A pass without samples adds nothing to gradients, whatever its loss is. Gradients outlive this object: they keep the
/// memory that they are views of.
class ParameterGradients final : private BackwardListener {
 public:
  /// Collective. A tensor with two names counts once, by the first. `workers` outlives this object. Throws Error
  /// (input) for parameters that are none of autograd's, not float32 or on several devices, and like GradientReducer;
  /// the same on all ranks.
  ParameterGradients(job::Workers& workers, const NamedTensors& parameters, const interop::ReducerOptions& options,
                     GradientOwner owner);

  /// All parameters, those without gradients as well.
  const NamedTensors::Pairs& parameters() const { return all_; }

  /// Throws Error (input), on all ranks, where parameters are not as they were when this object was made: moved,
  /// converted, or requiring gradients only now; and where the last backward pass has not come to its end.
  void check();
  /// Reduces: afterwards grad() of each parameter is the same on all ranks, and that of a parameter for which no rank
  /// had a gradient is as one process would have it: none, or zeros where there were zeros before.
  void reduce();
  /// The same for the passes there are; false where no rank has any.
  bool reduce_rest();
  /// Removes gradients (`set_to_none`) or sets those that there are to zero. Throws Error (input) between backward and
  /// step.
  void clear(bool set_to_none);
  /// Ends the group and throws Error (input) "[where] needed; given", where by the owner.
  [[noreturn]] void misused(const std::string& needed, const std::string& given);
  interop::GradientReducer& reducer() { return *reducer_; }  ///< what reduces the gradients

 private:
  /// Which tensor was a gradient, and how often it had been changed.
  struct Mark {
    const void* tensor = nullptr;
    std::uint32_t version = 0;
    bool operator==(const Mark&) const = default;
  };

  bool backward_begins() override;
  void gradient_ready(std::size_t parameter) override;
  void backward_ends() override;

  at::Tensor view_of(std::size_t parameter) const;
  void require_same_parameters();
  void require_untouched();
  void take_those_there();
  void move_to_view(std::size_t parameter);
  Mark mark_of(std::size_t parameter) const;
  void show_results();
  void weigh_alone(double samples);
  void scale_alone(double factor);

  NamedTensors::Pairs all_;
  std::vector<std::string> names_;
  std::vector<at::Tensor> watched_;
  NamedTensors::Pairs frozen_;  // require no gradients
  GradientOwner owner_;
  GradientDevice device_;
  std::unique_ptr<interop::GradientReducer> reducer_;
  std::vector<at::Tensor> views_;  // of the reducer's memory, as the parameters are laid out; none for one rank alone
  std::vector<Mark> marks_;        // since the last backward pass; empty where anything may happen to gradients
  bool pass_has_samples_ = false;
  double unit_ = 0;    // for one rank alone: samples of the latest pass with any in this step
  double weight_ = 0;  // and of all its passes
  std::unique_ptr<GradientHooks> hooks_;
};

}  // namespace lockstep::torch
