// Shared by both wrappers: reduces the gradients of LibTorch parameters with a GradientReducer.
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

namespace lockstep::inline v0::torch {

/// Weight and role of the next backward pass.
struct PassPlan {
  double samples = 1;                ///< samples of this rank in the pass
  std::optional<bool> is_last = {};  ///< see GradientReducer::begin_pass
};

/// The wrapper that owns the gradients.
struct GradientOwner {
  std::string where;               ///< location in error messages, such as "distributed_optimizer"
  std::string unchanged;           ///< when gradients must not be changed, for error messages
  std::function<PassPlan()> plan;  ///< called at the start of each backward pass
  std::function<void()> ended = {};  ///< called at the end of the pass, before backward() returns
};

/// Gradients of the parameters that require them, float32 or float64 and all on one device.
/// Autograd creates each gradient as a separate tensor, which is copied into the reducer's memory
/// and replaced by a view of it. Later passes are accumulated in place. When ranks are on different
/// nodes, complete buckets are reduced during the backward pass. Sparse gradients become dense.
///
/// With one rank and no clipping, gradients stay in autograd's tensors and are only scaled if
/// passes have different numbers of samples.
///
/// A pass without samples adds nothing to the gradients, even if its loss is NaN. Gradients may
/// outlive this object: each view keeps the memory alive.
class ParameterGradients final : private BackwardListener {
 public:
  /// Collective. A tensor with two names counts once, under its first name. `workers` must outlive
  /// this object. Throws, on all ranks, Error (input) for parameters that are undefined, not
  /// leaves, of another type or on several devices, and like GradientReducer.
  ParameterGradients(job::Workers& workers, const NamedTensors& parameters,
                     const interop::ReducerOptions& options, GradientOwner owner);

  /// All parameters, including those that require no gradients.
  const NamedTensors::Pairs& parameters() const { return all_; }

  /// Throws Error (input), on all ranks, if parameters were moved, converted or made to require
  /// gradients since construction, or if the last backward pass did not complete.
  void check();
  /// Reduces the gradients: grad() of each parameter is then the same on all ranks. If no rank had
  /// a gradient of a parameter, its grad() is as in one process: undefined, or zeros if it was
  /// zeros before.
  void reduce();
  /// As above, for an incomplete step; false if no rank has a gradient.
  bool reduce_partial();
  /// Removes gradients (`set_to_none`) or sets existing ones to zero. Throws Error (input) between
  /// a backward pass and the step.
  void clear(bool set_to_none);
  /// Ends the group and throws Error (input) "[where] expected …, got …" with the `where` of the
  /// owner.
  [[noreturn]] void usage_error(const std::string& expected, const std::string& actual);
  interop::GradientReducer& reducer() { return *reducer_; }  ///< the reducer of the gradients

 private:
  /// Identity and version of a gradient tensor.
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
  void observe_values() const;
  void require_untouched();
  void drain_ready();
  void mark_single(std::size_t parameter);
  void submit(std::size_t parameter, const at::Tensor& values);
  void move_to_view(std::size_t parameter);
  Mark mark_of(std::size_t parameter) const;
  void store_results();
  void rescale_single(double samples);
  void scale_single(double factor);

  NamedTensors::Pairs all_;
  std::vector<std::string> names_;
  std::vector<at::Tensor> watched_;
  NamedTensors::Pairs frozen_;  // parameters that require no gradients
  GradientOwner owner_;
  GradientDevice device_;
  std::unique_ptr<interop::GradientReducer> reducer_;
  // Views of the reducer's memory with the strides of the parameters; empty if is_alone().
  std::vector<at::Tensor> views_;
  std::vector<Mark> marks_;  // after the last backward pass; empty when gradients may be changed
  bool pass_has_samples_ = false;
  double unit_ = 0;    // for one rank: samples of the latest non-empty pass of this step
  double weight_ = 0;  // for one rank: samples of all passes of this step
  std::unique_ptr<GradientHooks> hooks_;
};

}  // namespace lockstep::inline v0::torch
