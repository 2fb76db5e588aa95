// A network made ready for one replica: flat parameters, flat gradients, and a plan for every batch size it has met.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/device/buffer.h"
#include "lockstep/model/batch_view.h"
#include "lockstep/model/loss.h"
#include "lockstep/model/network.h"
#include "lockstep/model/parameters.h"
#include "lockstep/model/tensor.h"

namespace lockstep::model {

class Backend;
class Plan;
class StatisticsExchange;

/// What a step's random numbers and its gradient's divisor depend on.
struct StepContext {
  std::uint64_t seed = 1;           ///< of initial parameters and of dropout
  std::int64_t step = 0;            ///< update number, keys dropout
  std::int64_t first_sample = 0;    ///< index in the global batch of this part's first sample, keys dropout
  std::int64_t global_samples = 0;  ///< samples of the global batch: the divisor of the gradient
  float loss_scale = 1;             ///< gradients are multiplied by it, so that those of 16 bits do not vanish
};

/// One replica's model on one device. Not thread-safe: one thread per replica, the one that set its thread budget
/// (lockstep/base/host.h).
class CompiledModel {
 public:
  /// `gradients` provides the flat gradient, so that it may lie where a communicator reduces it in place. Throws Error
  /// (device) where the device has no backend in this build, Error (input) for a precision that it lacks. With
  /// `options.statistics` batch normalization in training is over the samples of all members: they then
  /// make the same calls of train_batch, also without samples.
  CompiledModel(std::shared_ptr<const Network> network, device::Device device, device::Allocator& gradients,
                const ComputeOptions& options = {});
  ~CompiledModel();
  CompiledModel(CompiledModel&&) noexcept;

  const Network& network() const { return *network_; }  ///< what was compiled
  /// Where all work of this model is put, in order.
  Backend& backend() { return *backend_; }

  /// Sets every parameter and buffer to its initial value, a pure function of (seed, name).
  void initialize(std::uint64_t seed);

  /// Names, shapes and places of parameters() and gradients().
  const ParameterTable& parameter_table() const { return network_->parameters(); }
  /// Names, shapes and places of buffers().
  const ParameterTable& buffer_table() const { return network_->buffers(); }
  // Flat arrays in the device's memory: the host reads and writes them through device::HostView.
  std::span<float> parameters() { return parameters_.as<float>(); }  ///< after a change: parameters_changed()
  std::span<float> gradients() { return gradients_.as<float>(); }    ///< written by train_batch
  std::span<float> buffers() { return buffers_.as<float>(); }        ///< moving statistics of normalization

  /// Brings the copy of the parameters that products read, where the precision asks for one, up to date. On the stream.
  void parameters_changed();
  /// That copy: the parameters in the model's precision, flat.
  TensorView weights();

  /// Forward, loss, backward on `batch`. Gradients of the sum of losses / context.global_samples go to gradients():
  /// written, or with `accumulate` added to what is there (a further micro-batch of the same step). `ready`, if given,
  /// hears of every parameter once.
  MetricSums train_batch(const BatchView& batch, const StepContext& context, const Loss& loss, bool accumulate = false,
                         const GradientReady& ready = {});

  /// train_batch in two halves, neither of which waits for the device: the first brings the batch to it, the second may
  /// be recorded and repeated for further batches of `samples` samples. Sums are the backend's. With `staged` the batch
  /// is what stage() was given last.
  void load(const BatchView& batch, const StepContext& context, const Loss& loss, bool staged = false);
  /// Train_batch() of the batch that load() brought.
  void train_loaded(std::int64_t samples, const StepContext& context, const Loss& loss, bool accumulate = false,
                    const GradientReady& ready = {});

  /// Begins to bring a batch to the device beside the work under way, for a later load(). One batch at a time; what
  /// comes between may load others. A device that computes in host memory needs none of it.
  void stage(const BatchView& batch);

  /// Forward and loss in inference mode: moving statistics, no dropout.
  MetricSums evaluate_batch(const BatchView& batch, const Loss& loss);

  /// Outputs [samples, output shape...] in inference mode; valid until the next call on this model.
  std::span<const float> predict_batch(const BatchView& batch);
  /// Outputs [samples, width] of float32 features, in inference mode; they stay until the next pass.
  std::span<const float> predict_batch(std::int64_t samples, std::span<const float> features) {
    return predict_batch({.samples = samples, .features = features});
  }

  /// Makes the plan for `samples` now instead of in the first pass that needs it, and takes its memory: activations,
  /// workspaces and what operations save. Throws Error (device) where that does not fit, as the pass would. What
  /// carries a batch to the device is taken with the first batch of its size.
  void prepare(std::int64_t samples, bool training);

  /// Changes when memory that passes use has moved: what was recorded before is of no use then.
  std::uint64_t placement() const;

  /// Bytes held on the device.
  struct Memory {
    std::size_t parameters = 0;   ///< with their copy of 16 bits and the moving statistics
    std::size_t gradients = 0;    ///< with those of micro-batches
    std::size_t activations = 0;  ///< the arena of all plans, with what operations save and need to work

    std::size_t total() const { return parameters + gradients + activations; }  ///< bytes of all together
  };
  Memory memory() const;  ///< bytes that this model holds on its device

 private:
  Plan& plan(std::int64_t samples, bool training);
  void train_without_samples(bool accumulate, const GradientReady& ready);
  Plan& forward_in_inference(const BatchView& batch);
  void grow_arena(std::size_t bytes, std::int64_t samples);

  std::shared_ptr<const Network> network_;
  std::unique_ptr<Backend> backend_;
  bool normalizes_together_;  // with other replicas
  device::Buffer parameters_;
  device::Buffer gradients_;
  device::Buffer buffers_;
  device::Buffer weights_;          // the parameters in 16 bits; none for float32
  device::Buffer micro_gradients_;  // where a further micro-batch's gradients are written before they are added
  device::Buffer arena_;            // shared by all plans: only one runs at a time
  std::uint64_t arenas_ = 0;        // allocated so far
  std::map<std::pair<std::int64_t, bool>, std::unique_ptr<Plan>> plans_;
  TensorView loaded_;                // features of the batch under way
  std::vector<float> host_outputs_;  // of predict_batch, where the outputs are not float32 in host memory
};

}  // namespace lockstep::model
