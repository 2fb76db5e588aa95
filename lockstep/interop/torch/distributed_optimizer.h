// Data parallelism around an optimizer of LibTorch, in a training loop that exists.
#pragma once

#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "lockstep/interop/torch/named_tensors.h"
#include "lockstep/interop/torch/parameter_gradients.h"
#include "lockstep/job/session.h"

namespace lockstep::torch {

/// What DistributedOptimizer does that does not depend on the type of the optimizer.
class OptimizerExchange {
 public:
  /// Over `workers`, which outlive it. Collective.
  OptimizerExchange(job::Workers& workers, ::torch::optim::Optimizer& optimizer, const NamedTensors& parameters,
                    const interop::ReducerOptions& options);

  void set_samples(double samples) { samples_ = samples; }  ///< see DistributedOptimizer, as all that follows
  void broadcast_parameters(int root);                      ///< collective
  void broadcast_optimizer_state(int root);                 ///< collective
  bool step();                                              ///< collective
  bool flush();                                             ///< collective
  ParameterGradients& gradients() { return gradients_; }    ///< where gradients lie, and how they travel

 private:
  void require_same_groups();
  bool update();

  ::torch::optim::Optimizer& optimizer_;
  double samples_ = 1;
  ParameterGradients gradients_;
  std::vector<std::size_t> group_sizes_;  // when it was wrapped
};

/// Around any optimizer of torch::optim but LBFGS, under mpirun or alone:
///
///     lockstep::Session session(argc, argv);
///     ::torch::optim::Adam adam(net->parameters(), 1e-3);
///     lockstep::torch::DistributedOptimizer optimizer(session, adam, net->named_parameters());
///     optimizer.broadcast_parameters();
///     for (auto& batch : *loader) {
///       optimizer.zero_grad();
///       optimizer.set_samples(batch.data.size(0));
///       loss_of(net, batch).backward();           // buckets are filled, and reduced where a wire lies between ranks
///       optimizer.step();                         // averages what is left over all ranks, then adam.step()
///     }
///
/// Each rank computes the gradient of the mean loss of its own samples; step() makes it that of all samples of the
/// step, each weighing the same, so that N ranks train as one process does at the same global batch, to float rounding.
/// Parameters without a gradient on a rank count as zero there; those without any on all ranks keep none, and the inner
/// optimizer leaves them alone as it would in one process.
///
/// All ranks call the same functions in the same order. Calls in another order are an Error (input) that says which
/// comes when; it reaches all ranks. So are parameters that change after they are wrapped: in type or device, in
/// whether they require gradients, by add_param_group; and a backward pass that ended with an exception, whose
/// gradients are on their way in part.
template <typename Optimizer>
class DistributedOptimizer {
  static_assert(std::is_base_of_v<::torch::optim::Optimizer, Optimizer>, "needed an optimizer of torch::optim");
  static_assert(!std::is_base_of_v<::torch::optim::LBFGS, Optimizer>,
                "LBFGS computes losses within step(), where ranks cannot follow each other");

 public:
  /// Collective: names, shapes and order of the parameters are compared over all ranks. `parameters`: what
  /// net->named_parameters() gives; all of the optimizer's and no others, but for those that require no gradients.
  /// Session and optimizer outlive this object. Throws Error (input) for options and parameters that cannot be, Error
  /// (communication) for ranks that have other parameters, naming the first; all ranks throw.
  DistributedOptimizer(job::Session& session, Optimizer& optimizer, const NamedTensors& parameters,
                       const interop::ReducerOptions& options = {})
      : DistributedOptimizer(session.workers(), optimizer, parameters, options) {}
  /// The same over a group of one's own making.
  DistributedOptimizer(job::Workers& workers, Optimizer& optimizer, const NamedTensors& parameters,
                       const interop::ReducerOptions& options = {})
      : inner_(optimizer), exchange_(workers, optimizer, parameters, options) {}

  Optimizer& inner() { return inner_; }  ///< what was wrapped

  /// All ranks' parameters become those of rank `root`. Collective, between steps.
  void broadcast_parameters(int root = 0) { exchange_.broadcast_parameters(root); }
  /// The same for what the optimizer keeps between steps, and its options such as the learning rate. What rank `root`
  /// keeps nothing of, such as the momentum of a new optimizer, no rank does.
  void broadcast_optimizer_state(int root = 0) { exchange_.broadcast_optimizer_state(root); }

  /// This rank's samples in each backward pass from now on, over which its loss is a mean: 0 for a rank that takes part
  /// without any. Without it ranks weigh the same.
  void set_samples(std::int64_t samples) { exchange_.set_samples(static_cast<double>(samples)); }

  /// Removes gradients, or sets those that there are to zero: then parameters that get none are still updated with
  /// zeros, as in one process. An error between a backward pass and the step.
  void zero_grad(bool set_to_none = true) { exchange_.gradients().clear(set_to_none); }
  /// Replaces gradients by those of all ranks, for code that looks at them or changes them before step(), which then
  /// only updates.
  void synchronize() { exchange_.gradients().reduce(); }
  /// Reduces unless synchronize() has, then calls the inner optimizer's step(); not where no rank had a sample. Whether
  /// it did.
  bool step() { return exchange_.step(); }
  /// At the end of an epoch: a step from the backward passes that are left over, where backward_passes_per_step does
  /// not divide their number. Whether there was anything. Called by all ranks, which may have different numbers of
  /// passes.
  bool flush() { return exchange_.flush(); }

  double gradient_norm() { return reducer().gradient_norm(); }  ///< of the last step, before clipping
  double samples() { return reducer().samples(); }              ///< of the last step, over all ranks
  /// What its buckets did, and numbers of the last step.
  interop::GradientReducer& reducer() { return exchange_.gradients().reducer(); }

 private:
  Optimizer& inner_;
  OptimizerExchange exchange_;
};

}  // namespace lockstep::torch
