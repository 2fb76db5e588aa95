// A network compiled for one replica: flat parameters, flat gradients, and one plan per batch size.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/device/buffer.h"
#include "lockstep/model/loss/batch_view.h"
#include "lockstep/model/loss/loss.h"
#include "lockstep/model/network/network.h"
#include "lockstep/model/tensor/compute_options.h"
#include "lockstep/model/tensor/parameters.h"
#include "lockstep/model/tensor/tensor.h"

namespace lockstep::inline v0::model {

class Backend;
class Plan;
class StepProfile;

/// The values that a step's random numbers and its gradient divisor depend on.
struct StepContext {
  std::uint64_t seed = 1;  ///< seed of initial parameters and dropout
  std::int64_t step = 0;   ///< update number, seeds dropout
  /// Index of this part's first sample in the global batch, seeds dropout.
  std::int64_t first_sample = 0;
  std::int64_t global_samples = 0;  ///< samples of the global batch: the divisor of the gradient
  float loss_scale = 1;             ///< factor on the gradients that prevents underflow in 16 bits
  StepProfile* profile = nullptr;   ///< times layers and loss (step_profile.h); null: none
};

/// One replica's model on one device. Not thread-safe: call it only from the thread of its replica,
/// the one that set its thread budget (lockstep/base/system/host.h).
class CompiledModel {
 public:
  /// `gradients` allocates the flat gradient, for example in memory that a communicator reduces in
  /// place. Throws Error (device) if this build has no backend for the device, Error (input) for a
  /// precision that the device does not support. With `options.statistics`, batch normalization in
  /// training covers the samples of all members: all of them must make the same train_batch calls,
  /// with or without samples.
  CompiledModel(std::shared_ptr<const Network> network, device::Device device,
                device::Allocator& gradients, const ComputeOptions& options = {},
                const ComputeHooks& hooks = {});
  ~CompiledModel();
  CompiledModel(CompiledModel&&) noexcept;

  const Network& network() const { return *network_; }  ///< the compiled network
  /// The backend on which all work of this model is enqueued, in order.
  Backend& backend() { return *backend_; }

  /// Sets every parameter and buffer to its initial value, a pure function of (seed, name).
  void initialize(std::uint64_t seed);

  /// Names, shapes and offsets of parameters().
  const ParameterTable& parameter_table() const { return network_->parameters(); }
  /// Layout of gradients(): the parameters that are not frozen, a prefix of parameters().
  const ParameterTable& trained_table() const { return network_->trained(); }
  /// Names, shapes and offsets of buffers().
  const ParameterTable& buffer_table() const { return network_->buffers(); }
  // Flat arrays in device memory. The host reads and writes them through device::HostView.
  /// Call parameters_changed() after writing.
  std::span<float> parameters() { return parameters_.as<float>(); }
  std::span<float> gradients() { return gradients_.as<float>(); }  ///< written by train_batch
  /// Moving statistics of batch normalization.
  std::span<float> buffers() { return buffers_.as<float>(); }

  /// Updates the reduced-precision copy of the parameters that matrix products read, if the
  /// precision needs one. Enqueued on the stream.
  void parameters_changed();
  /// The parameters in the model's precision, flat.
  TensorView weights();

  /// Forward, loss and backward on `batch`. Writes the gradients of (sum of losses /
  /// context.global_samples) to gradients(). With `accumulate`, adds them to the existing values
  /// instead (a further micro-batch of the same step). `ready`, if given, is called once per
  /// parameter.
  MetricSums train_batch(const BatchView& batch, const StepContext& context, const TotalLoss& loss,
                         bool accumulate = false, const GradientReady& ready = {});

  /// train_batch() in two halves, neither of which waits for the device. load() copies the batch to
  /// the device; train_loaded() can be recorded and replayed for further batches of `samples`
  /// samples. The backend keeps the sums. `staged`: the batch is that of the last stage().
  void load(const BatchView& batch, const StepContext& context, const TotalLoss& loss,
            bool staged = false);
  /// train_batch() on the batch that load() has copied.
  void train_loaded(std::int64_t samples, const StepContext& context, const TotalLoss& loss,
                    bool accumulate = false, const GradientReady& ready = {});

  /// Starts copying a batch to the device for a later load(), overlapped with the work in progress.
  /// One batch at a time; calls in between may load other batches. Not needed on a device that
  /// computes in host memory.
  void stage(const BatchView& batch);
  /// Enqueues the work of load() for `batch` ahead of time. `batch` is that of the last stage() and
  /// has the size of the last trained batch. load() repeats the work if another pass has used the
  /// memory since. Does nothing for a batch that load() would reject.
  void load_ahead(const BatchView& batch, const TotalLoss& loss);

  /// Forward and loss in inference mode: moving statistics, no dropout. `outputs`, if given, is set
  /// to what predict_outputs() returns.
  MetricSums evaluate_batch(const BatchView& batch, const TotalLoss& loss,
                            std::vector<std::span<const float>>* outputs = nullptr);

  /// Makes the next load() and train_loaded() calls, for `samples` samples in total, keep their
  /// outputs, also when they are replayed. Outputs are then stored whole
  /// (ComputeOptions::logits_bytes). 0: none.
  void keep_outputs(std::int64_t samples);
  /// The outputs since keep_outputs(), as predict_outputs(), once the work on the backend's stream
  /// is complete.
  std::vector<std::span<const float>> kept_outputs();

  /// The output with the index `output` of Network::outputs(), [samples, output shape...], in
  /// inference mode, valid until the next call on this model.
  std::span<const float> predict_batch(const BatchView& batch, std::size_t output = 0);
  /// All outputs of predict_batch(), in the order of Network::outputs().
  std::vector<std::span<const float>> predict_outputs(const BatchView& batch);
  /// Outputs [samples, width] for float32 features, in inference mode, valid until the next pass.
  std::span<const float> predict_batch(std::int64_t samples, std::span<const float> features) {
    return predict_batch({.samples = samples, .features = features});
  }

  /// Row `row` of the first output [T, ...] of one sample, in inference mode, valid until the next
  /// call on this model. Only this row is copied from a GPU.
  std::span<const float> predict_row(const BatchView& batch, std::int64_t row);
  /// Whether sequences can be computed in parts: no row of a layer's output depends on later rows
  /// (Traits::incremental, on a GPU Traits::incremental_on_gpu).
  bool is_incremental() const;
  /// Consecutive positions of a sequence.
  struct Positions {
    std::int64_t first = 0;  ///< index of the first one
    std::int64_t count = 0;  ///< number of positions
  };
  /// Row `row` of the first output, which is one of `positions`. `batch` contains the inputs at
  /// these positions only. `cache` holds what layers need of earlier positions, such as keys and
  /// values; it is empty before the first pass. Positions may be recomputed. Segments are not read.
  /// Requires is_incremental().
  std::span<const float> predict_row(const BatchView& batch, std::int64_t row,
                                     const Positions& positions, device::Buffer& cache);

  /// Creates the plan for `samples` before the first pass that needs it, and allocates its memory:
  /// activations, workspaces and saved values. Throws Error (device) if they do not fit. Staging
  /// buffers are allocated with the first batch of their size. `loss` is the training loss.
  void prepare(std::int64_t samples, bool training, const TotalLoss& loss = {});

  /// Changes when memory used by passes has moved. Earlier recordings are then invalid.
  std::uint64_t placement() const;

  Recompute recompute() const { return recompute_; }  ///< which activations training keeps

  /// Bytes allocated on the device.
  struct Memory {
    std::size_t parameters = 0;   ///< with their 16-bit copy and the moving statistics
    std::size_t gradients = 0;    ///< with the gradients of micro-batches
    std::size_t activations = 0;  ///< the arena of all plans, with saved values and workspaces

    /// Sum of all fields.
    std::size_t total() const { return parameters + gradients + activations; }
  };
  Memory memory() const;  ///< bytes that this model has allocated on its device

 private:
  /// The valid values of an int32 input: 0 .. count - 1, as required by the layer that reads it.
  struct IndexLimit {
    std::int64_t count = std::numeric_limits<std::int64_t>::max();
    std::string layer;
  };

  /// Identifies a plan.
  struct PlanKey {
    std::int64_t samples = 0;
    bool training = false;
    std::int64_t rows = 0;                     // sequence positions per pass; 0: all
    std::vector<std::int64_t> loss_rows = {};  // by output, see Plan; empty: all whole
    auto operator<=>(const PlanKey&) const = default;
  };

  Plan& plan(const PlanKey& key);
  PlanKey training_key(std::int64_t samples, const TotalLoss& loss) const;
  void check_inputs(const BatchView& batch, std::int64_t rows = 0) const;
  void train_without_samples(bool accumulate, const GradientReady& ready);
  Plan& forward_in_inference(const BatchView& batch);
  void check_all_targets(const BatchView& batch, const TotalLoss& loss) const;
  void keep(const Plan& active, std::int64_t samples);
  std::vector<std::span<const float>> all_on_host(const Plan& active);
  std::int64_t width(std::size_t output) const;  // elements of a sample
  void grow_arena(std::size_t bytes, const PlanKey& key);
  std::span<const float> on_host(const TensorView& values, std::size_t output);
  std::span<const float> row_on_host(const Plan& active, std::int64_t row, std::int64_t rows);

  std::shared_ptr<const Network> network_;
  std::unique_ptr<Backend> backend_;
  bool normalizes_together_;  // batch normalization is synchronized with other replicas
  Recompute recompute_;
  std::size_t logits_bytes_;  // stored whole in training
  device::Buffer parameters_;
  device::Buffer gradients_;
  device::Buffer buffers_;
  device::Buffer weights_;  // the parameters in 16 bits; empty for float32
  device::Buffer
      micro_gradients_;   // receives the gradients of a further micro-batch before they are added
  device::Buffer arena_;  // shared by all plans: only one runs at a time
  std::uint64_t arenas_ = 0;  // number of arenas, and of buffers of kept outputs, allocated so far
  std::map<PlanKey, std::unique_ptr<Plan>> plans_;
  std::vector<IndexLimit> index_limits_;  // by input
  /// Whether load_ahead() has loaded the last staged batch, and whether a later pass has
  /// overwritten it.
  enum class Ahead : std::uint8_t { none, loaded, overwritten };
  Ahead ahead_ = Ahead::none;
  PlanKey ahead_key_;
  // Host copies of outputs that are not float32 in host memory; one array for each output.
  std::vector<std::vector<float>> host_outputs_;
  // Outputs of keep_outputs(), in the model's precision: [samples, output] for each output.
  device::Buffer kept_;
  std::int64_t kept_samples_ = 0;
  std::int64_t copied_samples_ = 0;  // copied by train_loaded(), except in replays
};

}  // namespace lockstep::inline v0::model
