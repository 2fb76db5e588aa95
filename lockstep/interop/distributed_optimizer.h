// Data parallelism around an optimizer that exists, in a training loop that exists.
#pragma once

#include <concepts>
#include <cstddef>
#include <optional>
#include <ranges>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/interop/parameter_exchange.h"
#include "lockstep/job/session.h"

namespace lockstep::interop {

using DistributedOptions = ReducerOptions;  ///< How gradients travel; see ReducerOptions.

/// A range of Parameter.
template <typename T>
concept RangeOfParameters =
    std::ranges::input_range<T> && std::convertible_to<std::ranges::range_reference_t<T>, Parameter>;

/// Anything that updates parameters from their gradients: `parameters()` gives a range of Parameter, in the order of
/// the forward pass and the same each time; `step()` updates them.
template <typename T>
concept OptimizerWithParameters = requires(T& optimizer) {
  { optimizer.parameters() } -> RangeOfParameters;
  optimizer.step();
};

/// What it keeps between steps (momentum, moments), if it says so: a range of Parameter of which only name and values
/// matter.
template <typename T>
concept OptimizerWithState = requires(T& optimizer) {
  { optimizer.state() } -> RangeOfParameters;
};

/// Around an optimizer of one's own, under mpirun or alone:
///
///     Session session(argc, argv);
///     DistributedOptimizer optimizer(session, sgd);
///     optimizer.broadcast_parameters();
///     for (...) {
///       net.backward(batch);                      // this rank's part of the global batch
///       optimizer.backward_done(batch.size());    // gradients are means over as many samples
///       optimizer.step();                         // averages them over all ranks, then sgd.step()
///     }
///
/// Every rank computes the gradient of its own samples; step() replaces gradients by those of all samples of the step,
/// each weighing the same, and calls the inner optimizer, on every rank with the same numbers. So N ranks train as one
/// process does at the same global batch, to float rounding.
///
/// All ranks call the same functions in the same order. Calls in another order are an Error (input) that says which
/// comes when; it reaches all ranks. One thread at a time. A rank that is alone at something, such as saving, for
/// longer than the stall timeout (SessionOptions::workers) while others wait for it is taken for lost, unless it calls
/// Workers::activity().tick() now and then.
template <OptimizerWithParameters Inner>
class DistributedOptimizer {
 public:
  /// Collective: names, shapes and order of the parameters are compared over all ranks. Session and optimizer outlive
  /// this object. Throws Error (input) for options or names that cannot be, Error (communication) for ranks that have
  /// other parameters, naming the first.
  DistributedOptimizer(job::Session& session, Inner& inner, const DistributedOptions& options = {})
      : DistributedOptimizer(session.workers(), inner, options) {}
  /// The same over a group of one's own making.
  DistributedOptimizer(job::Workers& workers, Inner& inner, const DistributedOptions& options = {})
      : inner_(inner), parameters_(copied(inner.parameters())), exchange_(workers, parameters_, options) {}

  Inner& inner() { return inner_; }  ///< what was wrapped

  /// All ranks' parameters become those of rank `root`. Collective, between steps.
  void broadcast_parameters(int root = 0) { exchange_.broadcast_values(refreshed(), root); }
  /// The same for what the optimizer keeps between steps. Collective, between steps. Throws Error (communication) where
  /// ranks keep arrays of other sizes.
  void broadcast_optimizer_state(int root = 0) requires OptimizerWithState<Inner> {
    exchange_.broadcast_state(copied(inner_.state()), root);
  }

  /// Before a backward pass over `samples` samples whose gradients are announced one by one (gradient_ready); else it
  /// may be left out. Until backward_done() parameters and gradients stay where they are now.
  void begin_backward(double samples = 1) { exchange_.begin_backward(refreshed(), samples); }
  /// The gradient of a parameter (by its number in parameters()) is there and complete: where a wire lies between
  /// ranks, its reduction begins while backward goes on.
  void gradient_ready(std::size_t parameter) { exchange_.gradient_ready(parameters_, parameter); }
  /// A backward pass over `samples` samples of this rank is done; gradients are means over them. The same number on all
  /// ranks (as without one) lets ranks weigh the same; 0 is for a rank that had no samples. Behind begin_backward() it
  /// is left out, or the same. While more passes of the step follow the gradients are kept here and cleared there.
  /// Collective in the first step.
  void backward_done(std::optional<double> samples = {}) { exchange_.backward_done(refreshed(), samples); }

  /// Replaces the gradients by those of all ranks, for code that looks at them or changes them before step(), which
  /// then only updates.
  void synchronize() { exchange_.synchronize(refreshed()); }
  /// Reduces unless synchronize() has, then calls the inner optimizer's step(); not where no rank had a sample. Whether
  /// it did.
  bool step() {
    if (!exchange_.reducer().is_reduced()) synchronize();
    return update();
  }
  /// At the end of an epoch: a step from the backward passes that are left over, where backward_passes_per_step does
  /// not divide their number. Averaged over the samples there were. Whether there was anything. Called by all ranks,
  /// after as many steps on each; of the passes behind them they may have different numbers.
  bool flush() { return exchange_.synchronize_rest(refreshed()) && update(); }
  /// The inner optimizer's zero_grad(), where it has one; an error between a backward pass and the step.
  void zero_grad() requires requires(Inner& inner) { inner.zero_grad(); }
  {
    exchange_.reducer().require_between_steps("zero_grad()");
    inner_.zero_grad();
  }

  /// Whether any rank had a gradient of the parameter in the last step. An optimizer that passes over parameters
  /// without a gradient asks here, so that all ranks pass over the same; where none had one it is zero.
  bool has_gradient(std::size_t parameter) const { return exchange_.reducer().has_gradient(parameter); }
  double gradient_norm() const { return exchange_.reducer().gradient_norm(); }  ///< of the last step, before clipping
  double samples() const { return exchange_.reducer().samples(); }              ///< of the last step, over all ranks
  /// What reduces the gradients: its buckets, and numbers of the last step.
  GradientReducer& reducer() { return exchange_.reducer(); }

 private:
  template <typename Range>
  static std::vector<Parameter> copied(Range&& range) {
    std::vector<Parameter> copies;
    for (auto&& parameter : range) copies.push_back(parameter);
    return copies;
  }
  // The optimizer may have moved them.
  const std::vector<Parameter>& refreshed() { return parameters_ = copied(inner_.parameters()); }

  bool update() {
    const bool has_samples = samples() > 0;
    if (has_samples) inner_.step();
    exchange_.reducer().applied();
    return has_samples;
  }

  Inner& inner_;
  std::vector<Parameter> parameters_;
  ParameterExchange exchange_;
};

}  // namespace lockstep::interop
