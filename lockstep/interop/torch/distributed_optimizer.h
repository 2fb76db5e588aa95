// Adds data parallelism to a LibTorch optimizer in an existing training loop.
#pragma once

#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "lockstep/interop/torch/named_tensors.h"
#include "lockstep/interop/torch/parameter_gradients.h"
#include "lockstep/job/workers.h"

namespace lockstep::inline v0::torch {

/// The part of DistributedOptimizer that does not depend on the type of the optimizer.
class OptimizerExchange {
 public:
  /// `workers` must outlive this object. Collective.
  OptimizerExchange(job::Workers& workers, ::torch::optim::Optimizer& optimizer,
                    const NamedTensors& parameters, const interop::ReducerOptions& options);

  /// For this and the next four, see DistributedOptimizer.
  void set_samples(double samples) { samples_ = samples; }
  void broadcast_parameters(int root);                    ///< collective
  void broadcast_optimizer_state(int root);               ///< collective
  bool step();                                            ///< collective
  bool flush();                                           ///< collective
  ParameterGradients& gradients() { return gradients_; }  ///< the gradients and their reduction

 private:
  void require_same_groups();
  bool update();

  ::torch::optim::Optimizer& optimizer_;
  double samples_ = 1;
  ParameterGradients gradients_;
  std::vector<std::size_t> group_sizes_;  // when the optimizer was wrapped
};

/// Wraps any optimizer of torch::optim except LBFGS, in one process or under mpirun (within
/// lockstep::run()):
///
///     ::torch::optim::Adam adam(net->parameters(), 1e-3);
///     lockstep::torch::DistributedOptimizer optimizer(session, adam, net->named_parameters());
///     optimizer.broadcast_parameters();
///     for (auto& batch : *loader) {
///       optimizer.zero_grad();
///       optimizer.set_samples(batch.data.size(0));
///       loss_of(net, batch).backward();  // reductions overlap when ranks are on different nodes
///       optimizer.step();  // averages the remaining buckets, then calls adam.step()
///     }
///
/// Each rank computes the gradient of the mean loss of its own samples. step() replaces it by the
/// gradient of all samples of the step, with equal weights, so N ranks train like one process with
/// the same global batch, up to float rounding. A parameter without a gradient on a rank counts as
/// zero there. A parameter without a gradient on all ranks keeps none, and the inner optimizer
/// skips it as in one process.
///
/// All ranks call the same functions in the same order. A call out of order throws an Error (input)
/// that states the expected order, on all ranks. So does a change of the parameters after wrapping
/// (type, device, requires_grad or add_param_group), and a backward pass that ended with an
/// exception, because some of its gradients are already being reduced.
template <typename Optimizer>
class DistributedOptimizer {
  static_assert(std::is_base_of_v<::torch::optim::Optimizer, Optimizer>,
                "expected an optimizer of torch::optim");
  static_assert(!std::is_base_of_v<::torch::optim::LBFGS, Optimizer>,
                "LBFGS evaluates losses in step(), where ranks cannot stay synchronized");

 public:
  /// Collective: names, shapes and order of the parameters are compared across ranks. `parameters`:
  /// the result of net->named_parameters(), which has all parameters of the optimizer and no others
  /// except those that require no gradients. Session and optimizer must outlive this object.
  /// Throws, on all ranks, Error (input) for invalid options or parameters, and Error
  /// (communication) with the name of the first parameter that differs between ranks.
  DistributedOptimizer(job::Session& session, Optimizer& optimizer, const NamedTensors& parameters,
                       const interop::ReducerOptions& options = {})
      : DistributedOptimizer(session.workers(), optimizer, parameters, options) {}
  /// As above, with the caller's own Workers.
  DistributedOptimizer(job::Workers& workers, Optimizer& optimizer, const NamedTensors& parameters,
                       const interop::ReducerOptions& options = {})
      : inner_(optimizer), exchange_(workers, optimizer, parameters, options) {}

  Optimizer& inner() { return inner_; }  ///< the wrapped optimizer

  /// Copies the parameters of rank `root` to all ranks. Collective, between steps.
  void broadcast_parameters(int root = 0) { exchange_.broadcast_parameters(root); }
  /// Copies the optimizer's state and its options, such as the learning rate, of rank `root` to all
  /// ranks. State that rank `root` does not have, such as the momentum of a new optimizer, is
  /// removed. Collective, between steps.
  void broadcast_optimizer_state(int root = 0) { exchange_.broadcast_optimizer_state(root); }

  /// Sets this rank's number of samples in each following backward pass, over which its loss is a
  /// mean; 0 for a rank without samples. Without this call ranks have equal weights.
  void set_samples(std::int64_t samples) { exchange_.set_samples(static_cast<double>(samples)); }

  /// Removes gradients, or sets existing ones to zero: parameters without a new gradient are then
  /// updated with zeros, as in one process. An error between a backward pass and the step.
  void zero_grad(bool set_to_none = true) { exchange_.gradients().clear(set_to_none); }
  /// Reduces the gradients in place, for code that reads or changes them before step(); step() then
  /// only updates.
  void synchronize() { exchange_.gradients().reduce(); }
  /// Reduces the gradients unless synchronize() has done so, then calls the inner optimizer's
  /// step() if any rank had a sample, unless skip_non_finite forbids it: then rank 0 logs a
  /// warning that names the ranks whose gradient is not finite. Returns whether it did, the same on
  /// all ranks.
  bool step() { return exchange_.step(); }
  /// Makes a step of the remaining backward passes at the end of an epoch whose number of passes is
  /// not a multiple of backward_passes_per_step. Returns whether there were any. Called by all
  /// ranks; the number of remaining passes may differ.
  bool flush() { return exchange_.flush(); }

  /// Norm of the last step's gradient before clipping; finite if and only if the gradient is. 0
  /// without clip_norm and skip_non_finite.
  double gradient_norm() { return reducer().gradient_norm(); }
  /// Number of samples of the last step over all ranks.
  double samples() { return reducer().samples(); }
  /// The reducer, with its buckets and statistics of the last step.
  interop::GradientReducer& reducer() { return exchange_.gradients().reducer(); }

 private:
  Optimizer& inner_;
  OptimizerExchange exchange_;
};

}  // namespace lockstep::inline v0::torch
