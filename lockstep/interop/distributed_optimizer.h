// Adds data parallelism to an existing optimizer in an existing training loop.
#pragma once

#include <concepts>
#include <cstddef>
#include <iterator>
#include <optional>
#include <vector>

#include "lockstep/interop/parameter_exchange.h"

namespace lockstep::inline v0::interop {

using DistributedOptions = ReducerOptions;  ///< How gradients are reduced; see ReducerOptions.

/// A range of Parameter.
template <typename T>
concept RangeOfParameters = requires(T&& range) {
  { *std::begin(range) } -> std::convertible_to<Parameter>;
};

/// An optimizer: `parameters()` returns a range of Parameter, in the order of the forward pass and
/// the same in each call; `step()` updates the parameters from their gradients.
template <typename T>
concept OptimizerWithParameters = requires(T& optimizer) {
  { optimizer.parameters() } -> RangeOfParameters;
  optimizer.step();
};

/// An optimizer whose `state()` returns what it keeps between steps (momentum, moments) as a range
/// of Parameter. Only names and values are used.
template <typename T>
concept OptimizerWithState = requires(T& optimizer) {
  { optimizer.state() } -> RangeOfParameters;
};

/// Wraps any optimizer, in one process or under mpirun (within lockstep::run()):
///
///     DistributedOptimizer optimizer(session, sgd);
///     optimizer.broadcast_parameters();
///     for (...) {
///       net.backward(batch);                      // this rank's part of the global batch
///       optimizer.backward_done(batch.size());    // gradients are means over this many samples
///       optimizer.step();                         // averages them over all ranks, then sgd.step()
///     }
///
/// Every rank computes the gradient of its own samples. step() replaces it by the gradient of all
/// samples of the step, with equal weights, and calls the inner optimizer with the same values on
/// every rank. So N ranks train like one process with the same global batch, up to float rounding.
///
/// All ranks call the same functions in the same order. A call out of order throws an Error (input)
/// that states the expected order, on all ranks, and so does step() if a gradient was changed after
/// it was reported: only what synchronize() has reduced may be changed. Not thread-safe. A rank
/// may work alone, for example to save files, while others wait for it. After the stall timeout
/// (SessionOptions::workers), a warning names it, unless it calls Workers::activity().tick() from
/// time to time. A rank that neither computes, reads nor writes for that time ends the job.
template <OptimizerWithParameters Inner>
class DistributedOptimizer {
 public:
  /// Collective: names, shapes and order of the parameters are compared across ranks. Session and
  /// optimizer must outlive this object. Throws Error (input) for invalid options or names, and
  /// Error (communication) with the name of the first parameter that differs between ranks.
  DistributedOptimizer(job::Session& session, Inner& inner, const DistributedOptions& options = {})
      : DistributedOptimizer(session.workers(), inner, options) {}
  /// As above, with the caller's own Workers.
  DistributedOptimizer(job::Workers& workers, Inner& inner, const DistributedOptions& options = {})
      : inner_(inner),
        parameters_(copied(inner.parameters())),
        exchange_(workers, parameters_, options) {}

  Inner& inner() { return inner_; }  ///< the wrapped optimizer

  /// Copies the parameters of rank `root` to all ranks. Collective, between steps.
  void broadcast_parameters(int root = 0) { exchange_.broadcast_values(refreshed(), root); }
  /// Copies the optimizer's state of rank `root` to all ranks. Collective, between steps. Throws
  /// Error (communication) if array sizes differ between ranks.
  void broadcast_optimizer_state(int root = 0) requires OptimizerWithState<Inner> {
    exchange_.broadcast_state(copied(inner_.state()), root);
  }

  /// Begins a backward pass over `samples` samples whose gradients are reported by
  /// gradient_ready(); optional otherwise. Parameters and gradients must not move until
  /// backward_done().
  void begin_backward(double samples = 1) { exchange_.begin_backward(refreshed(), samples); }
  /// Reports that the gradient of a parameter (by its index in parameters()) is complete. When
  /// ranks are on different nodes, its reduction overlaps with the rest of the backward pass.
  void gradient_ready(std::size_t parameter) { exchange_.gradient_ready(parameters_, parameter); }
  /// Ends a backward pass; gradients are means over `samples` samples of this rank. Ranks with the
  /// same number (or none given) have equal weights; pass 0 for a rank without samples. After
  /// begin_backward(), omit it or pass the same number. If more passes of the step follow, the
  /// gradients are accumulated here and cleared in the caller's arrays. Collective in the first
  /// step.
  void backward_done(std::optional<double> samples = {}) {
    exchange_.backward_done(refreshed(), samples);
  }

  /// Reduces the gradients in place, for code that reads or changes them before step(); step() then
  /// only updates.
  void synchronize() { exchange_.synchronize(refreshed()); }
  /// Reduces the gradients unless synchronize() has done so, then calls the inner optimizer's
  /// step() if any rank had a sample, unless skip_non_finite forbids it: then rank 0 logs a warning
  /// that names the ranks whose gradient is not finite. Returns whether it did, the same on all
  /// ranks.
  bool step() {
    if (!exchange_.is_reduced()) synchronize();
    return update();
  }
  /// Makes a step of the remaining backward passes at the end of an epoch whose number of passes is
  /// not a multiple of backward_passes_per_step, averaged over their samples. Returns whether there
  /// were any. Called by all ranks after the same number of steps; the number of remaining passes
  /// may differ.
  bool flush() { return exchange_.synchronize_partial(refreshed()) && update(); }
  /// Ends the step after synchronize() without an update: the reduced gradients are not used, for
  /// rules of the caller's own such as a limit of their norm. All ranks see the same gradients, so
  /// all make the same decision.
  void discard() { exchange_.discard(); }
  /// Makes the steps of the other ranks, without samples of this one, until all ranks have called
  /// join(): for loaders of different lengths. Each rank calls it when its data end, also in the
  /// middle of the passes of a step. Meanwhile the others make no collective calls except those of
  /// their steps. Returns the number of steps of others that this rank has made. Collective.
  int join() {
    for (int steps = 1;; ++steps) {
      do backward_done(0);
      while (!exchange_.is_complete());
      step();
      if (samples() == 0) return steps - 1;
    }
  }
  /// Calls the inner optimizer's zero_grad(). An error between a backward pass and the step.
  void zero_grad() requires requires(Inner& inner) { inner.zero_grad(); }
  {
    exchange_.require_between_steps("zero_grad()");
    inner_.zero_grad();
  }

  /// Whether any rank had a gradient of the parameter in the last step; otherwise the gradient is
  /// zero. Optimizers that skip parameters without a gradient use this, so that all ranks skip the
  /// same ones.
  bool has_gradient(std::size_t parameter) const { return exchange_.has_gradient(parameter); }
  /// Norm of the last step's gradient before clipping; 0 without clip_norm and skip_non_finite.
  double gradient_norm() const { return exchange_.gradient_norm(); }
  /// Whether the reduced gradient of the last step is finite, the same on all ranks; true without
  /// clip_norm and skip_non_finite.
  bool is_finite() const { return exchange_.is_finite(); }
  /// Number of samples of the last step over all ranks.
  double samples() const { return exchange_.samples(); }
  /// The reducer, with its buckets and statistics of the last step
  /// (lockstep/interop/gradient_reducer.h).
  GradientReducer& reducer() { return exchange_.reducer(); }

 private:
  template <typename Range>
  static std::vector<Parameter> copied(Range&& range) {
    std::vector<Parameter> copies;
    for (auto&& parameter : range) copies.push_back(parameter);
    return copies;
  }
  // Views of the parameters, which the optimizer may have moved.
  const std::vector<Parameter>& refreshed() { return parameters_ = copied(inner_.parameters()); }

  bool update() {
    const bool is_applied = samples() > 0 && !exchange_.must_skip();
    if (is_applied) inner_.step();
    exchange_.applied();
    return is_applied;
  }

  Inner& inner_;
  std::vector<Parameter> parameters_;
  ParameterExchange exchange_;
};

}  // namespace lockstep::inline v0::interop
