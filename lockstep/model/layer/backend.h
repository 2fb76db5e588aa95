// The device interface of a model: memory, streams, input, loss and optimizer of one device, and
// the dispatch of layers to their code for it. Also StatisticsExchange, through which batch
// normalization synchronizes its statistics across replicas.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <set>
#include <span>
#include <string>

#include "lockstep/device/buffer.h"
#include "lockstep/device/stream.h"
#include "lockstep/model/layer/layer.h"
#include "lockstep/model/loss/batch_view.h"
#include "lockstep/model/loss/loss.h"
#include "lockstep/model/optimizer/updater.h"
#include "lockstep/model/tensor/compute_options.h"

namespace lockstep::inline v0::model {

class BuiltinLayer;

/// A group of replicas that share batch-normalization statistics. All members make the same calls
/// with the same counts in the same order, including members without samples in a pass. Called on
/// the model's thread.
class StatisticsExchange {
 public:
  virtual ~StatisticsExchange() = default;

  virtual int members() const = 0;  ///< number of replicas in the group
  virtual int member() const = 0;   ///< index of this replica, 0 .. members() - 1
  /// All-reduce: values[i] becomes its sum over the members, bit-identical on all of them. `values`
  /// is in the memory of the model's device; the sum is ordered on the stream of the model's
  /// backend. Throws Error (communication).
  virtual void sum(std::span<float> values) = 0;
};

/// Where a pass reads an input of the network: as features in the plan's type, or as indices.
struct LoadedInput {
  TensorView features;              ///< set for a float32 input
  std::span<std::int32_t> indices;  ///< set for an int32 input
};

/// How the loss of a part of the batch is scaled into gradients.
struct GradientScale {
  /// Samples of the global batch; a term with several positions per sample divides by these too.
  std::int64_t divisor = 0;
  float loss_scale = 1;  ///< factor on the gradients that prevents underflow in 16 bits
};

/// One device of one replica. The plan owns control flow and shapes. All work is enqueued on
/// stream() in call order. If runs_on_host(), it is complete when the call returns.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string name() const = 0;  ///< human-readable: "oneDNN"
  /// Whether passes are complete when their calls return, and operands are in host memory.
  virtual bool runs_on_host() const = 0;
  /// The type of activations, their gradients and `weights`.
  virtual Precision precision() const = 0;
  /// Whether a convolution can also compute the statistics for the normalization that reads it.
  virtual bool fuses_statistics() const { return false; }
  /// Allocates the memory of passes on this backend's device.
  virtual device::Allocator& allocator() = 0;
  /// Bytes that the allocator can still provide; unlimited on the host.
  virtual std::size_t free_bytes() { return std::numeric_limits<std::size_t>::max(); }
  virtual device::Stream& stream() = 0;  ///< the stream on which all work is enqueued

  /// One sentence for each choice between implementations of layers, with its reason.
  virtual std::set<std::string> choices() const { return {}; }
  /// Time that compile() has spent measuring algorithms so far.
  virtual double tuning_seconds() const { return 0; }
  /// Creates the operation of `layer` on this device; null as in Layer::compile.
  virtual std::unique_ptr<Operation> compile(const BuiltinLayer& layer,
                                             const CompileContext& context) = 0;

  /// Sets the values that the next pass depends on. Call it before the pass; it is not part of the
  /// work that can be recorded and replayed.
  virtual void begin_pass(const PassContext& pass, const GradientScale& scale) = 0;

  /// Starts copying a batch to the device, overlapped with work on the stream, for the next load()
  /// with `staged`. Other batches may be loaded in between. Does nothing if the batch is read in
  /// place.
  virtual void stage(const BatchView& /*batch*/) {}
  /// Moves a batch to the memory that the pass reads. Writes each input to its view in `inputs`:
  /// features in the plan's type, padded with zero channels if the view is larger, or indices.
  /// Points empty views at the batch in host memory. Not part of the work that can be recorded and
  /// replayed.
  virtual void load(std::span<LoadedInput> inputs, const BatchView& batch, bool staged) = 0;

  /// Adds the weighted loss of term `term` to the sums of the step. The first term also adds the
  /// other sums. Compares `outputs` [samples, width] with the targets of the term in the last
  /// loaded batch. If a further term has another number of positions per sample than the first one,
  /// its sum is multiplied by the ratio. If `gradient` is not empty, also writes the gradient of
  /// the outputs, with the scale of begin_pass(). With `rows.count`, `outputs` and `gradient`,
  /// which may share memory, cover these rows only; this requires sparse categorical cross-entropy.
  /// model::compute_loss() is the reference implementation.
  virtual void compute_loss(const TotalLoss& loss, std::size_t term, const TensorView& outputs,
                            std::int64_t samples, const TensorView& gradient,
                            const RowRange& rows) = 0;
  /// Writes the sums since clear_sums() to `summable` on this device, as floats that can be summed
  /// over replicas (MetricSums::write).
  virtual void write_sums(std::span<float> summable) = 0;
  virtual void clear_sums() = 0;  ///< resets the sums for the next step
  /// Starts copying the sums to the host.
  virtual void fetch_sums() {}
  /// The sums that fetch_sums() copied. The caller has waited for the copy.
  virtual MetricSums read_sums() = 0;

  /// A counter that increases when memory used by passes has moved.
  virtual std::uint64_t placement() const { return 0; }

  /// target[i] += addend[i], for gradients at a fork and for micro-batches. Both have the same
  /// type.
  virtual void accumulate(const TensorView& target, const TensorView& addend) = 0;
  /// target[i] = source[i]; both have the same type.
  virtual void copy(const TensorView& target, const TensorView& source) = 0;
  virtual void fill_with_zeros(const TensorView& target) = 0;  ///< target[i] = 0
  /// target[i] = source[i], converted from float32 to the backend's precision.
  virtual void narrow(const TensorView& target, std::span<const float> source) = 0;
  /// Converts arrays of the backend's precision to float32.
  virtual void widen(std::span<const Widening> arrays) {
    for (const Widening& array : arrays) read(array.from, array.to);
  }
  /// Creates the optimizer of this replica. `arrays` must outlive it.
  virtual std::unique_ptr<Updater> updater(const OptimizerOptions& options,
                                           const ParameterTable& table,
                                           const UpdateArrays& arrays) = 0;

  /// Copies device values to host memory as float32. Waits for the work on the stream.
  virtual void read(const TensorView& source, std::span<float> target) = 0;
};

/// Creates the backend of `device`. Throws Error (device) if a GPU is not available, Error (input)
/// for a precision that the device does not support.
std::unique_ptr<Backend> make_backend(device::Device device, const ComputeOptions& options = {},
                                      const ComputeHooks& hooks = {});

/// oneDNN and Eigen kernels in host memory. Throws Error (device) if the processor does not support
/// what `options` request.
std::unique_ptr<Backend> make_cpu_backend(device::Device device, const ComputeOptions& options,
                                          const ComputeHooks& hooks);
/// Defined in cuda/cuda_backend.cpp, or in cuda/no_cuda.cpp for a build without cuDNN.
std::unique_ptr<Backend> make_gpu_backend(device::Device device, const ComputeOptions& options,
                                          const ComputeHooks& hooks);

}  // namespace lockstep::inline v0::model
