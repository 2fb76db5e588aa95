// The device interface of a model: Backend supplies the kernels of a device to a plan, one operation per layer kind.
// Also StatisticsExchange, through which batch normalization synchronizes its statistics across replicas.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>

#include "lockstep/device/buffer.h"
#include "lockstep/device/stream.h"
#include "lockstep/model/batch_view.h"
#include "lockstep/model/layer.h"
#include "lockstep/model/layers/window.h"
#include "lockstep/model/loss.h"
#include "lockstep/model/updater.h"

namespace lockstep::model {

/// A group of replicas that share batch-normalization statistics. All members make the same calls with the same counts
/// in the same order, including members without samples in a pass. Called on the model's thread.
class StatisticsExchange {
 public:
  virtual ~StatisticsExchange() = default;

  virtual int members() const = 0;  ///< number of replicas in the group
  virtual int member() const = 0;   ///< index of this replica, 0 .. members() - 1
  /// All-reduce: values[i] becomes its sum over the members, bit-identical on all of them. `values` is in the memory of
  /// the model's device; the sum is ordered on the stream of the model's backend. Throws Error (communication).
  virtual void sum(std::span<float> values) = 0;
};

// Control flow, shapes and memory belong to the plan; the backend supplies the operations.

/// A convolution for one batch size.
struct Conv2DSpec {
  std::int64_t batch = 0;       ///< samples
  WindowGeometry window;        ///< geometry of input, kernel and output
  std::int64_t filters = 0;     ///< output channels
  std::int64_t groups = 1;      ///< channel groups, each with its own filters
  bool bias = true;             ///< whether to add a bias to each output channel
  bool relu = false;            ///< whether to fuse a ReLU into the output
  bool training = false;        ///< whether a backward pass follows
  bool input_gradient = false;  ///< whether backward must write the input's gradient
  /// whether a normalization is the only reader of the output; only with Fusions::statistics
  bool statistics = false;
};

/// A dense layer for one batch size.
struct DenseSpec {
  std::int64_t batch = 0;       ///< samples
  std::int64_t inputs = 0;      ///< elements per sample
  std::int64_t units = 0;       ///< outputs per sample
  bool bias = true;             ///< whether to add a bias to each unit
  bool relu = false;            ///< whether to fuse a ReLU into the output
  bool training = false;        ///< whether a backward pass follows
  bool input_gradient = false;  ///< whether backward must write the input's gradient
};

/// A pooling layer for one batch size.
struct Pool2DSpec {
  /// The maximum of each window, or the mean of its elements that are not padding.
  enum class Kind { max, average };
  Kind kind = Kind::max;   ///< the reduction
  std::int64_t batch = 0;  ///< samples
  WindowGeometry window;   ///< geometry of input, window and output
  bool training = false;   ///< whether a backward pass follows
};

/// A batch normalization for one batch size.
struct BatchNormalizationSpec {
  std::int64_t rows = 0;      ///< batch x height x width: the samples per channel
  std::int64_t channels = 0;  ///< channels, each with a mean and a variance
  float epsilon = 0;          ///< added to the variance before the square root
  float momentum = 0;         ///< fraction of the old moving statistics that is kept
  /// whether to add input 1 to the normalized input 0; only with Fusions::additions
  bool add = false;
  bool relu = false;  ///< whether to fuse a ReLU into the output
  /// True: uses batch statistics, and a backward pass follows. False: uses moving statistics.
  bool training = false;
  bool statistics = false;  ///< Operands::statistics holds what the preceding convolution computed about input 0
};

/// A dropout layer for one batch size; training only.
struct DropoutSpec {
  std::string layer;          ///< layer name, which seeds the mask
  std::int64_t batch = 0;     ///< samples
  std::int64_t features = 0;  ///< elements per sample
  float rate = 0;             ///< fraction of the elements set to 0
};

/// How the loss of a part is scaled into gradients.
struct GradientScale {
  std::int64_t divisor = 0;  ///< samples of the global batch
  float loss_scale = 1;      ///< factor on the gradients that prevents underflow in 16 bits
};

/// Kernels of one device for one replica. All work is enqueued on stream() in call order. If runs_on_host(), it is
/// complete when the call returns.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string name() const = 0;  ///< human-readable: "oneDNN"
  /// Whether passes are complete when their calls return, and operands are in host memory.
  virtual bool runs_on_host() const = 0;
  virtual Precision precision() const = 0;        ///< the type of activations, their gradients and `weights`
  virtual Fusions fusions() const { return {}; }  ///< what its operations can fuse
  virtual device::Allocator& allocator() = 0;     ///< allocates the memory of passes on this backend's device
  /// Bytes that the allocator can still provide. On the host, where the operating system decides, there is no limit.
  virtual std::size_t free_bytes() { return std::numeric_limits<std::size_t>::max(); }
  virtual device::Stream& stream() = 0;  ///< the stream on which all work is enqueued

  virtual std::unique_ptr<Operation> conv_2d(const Conv2DSpec& spec) = 0;  ///< one convolution
  virtual std::unique_ptr<Operation> dense(const DenseSpec& spec) = 0;     ///< one dense layer
  virtual std::unique_ptr<Operation> pool_2d(const Pool2DSpec& spec) = 0;  ///< one pooling layer
  /// One batch normalization.
  virtual std::unique_ptr<Operation> batch_normalization(const BatchNormalizationSpec& spec) = 0;
  /// max(x, 0) of `elements` elements in total.
  virtual std::unique_ptr<Operation> relu(std::int64_t elements, bool training) = 0;
  virtual std::unique_ptr<Operation> dropout(const DropoutSpec& spec) = 0;  ///< one dropout layer
  /// Sum of two inputs, followed by max(x, 0) if `relu`.
  virtual std::unique_ptr<Operation> add(bool relu) = 0;
  /// Softmax over each of `rows` rows of `width` elements.
  virtual std::unique_ptr<Operation> softmax(std::int64_t rows, std::int64_t width, bool training) = 0;

  /// Sets the values that the next pass depends on. Call it before the pass; it is not part of the work that can be
  /// recorded and replayed.
  virtual void begin_pass(const PassContext& pass, const GradientScale& scale) = 0;

  /// Starts copying a batch to the device, overlapped with work on the stream, for the next load() with `staged`. Other
  /// batches may be loaded in between. Does nothing if the batch is read in place.
  virtual void stage(const BatchView& /*batch*/) {}
  /// Moves a batch to where the pass reads it: writes its features to `input` in the plan's type, unless `input` is
  /// empty. Returns the features: `input`, or their place in host memory. Not part of the work that can be recorded and
  /// replayed.
  virtual TensorView load(const TensorView& input, const BatchView& batch, bool staged) = 0;

  /// Adds the loss and metrics of `outputs` [samples, width] for the targets loaded last to the sums of the step. If
  /// `gradient` is not empty, also writes the gradient of the outputs, with the scale given to begin_pass().
  /// model::compute_loss() is the reference implementation.
  virtual void compute_loss(const Loss& loss, const TensorView& outputs, std::int64_t samples,
                            const TensorView& gradient) = 0;
  /// Writes the sums since clear_sums() to `summable` on this device, as floats that can be summed over replicas
  /// (MetricSums::write).
  virtual void write_sums(std::span<float> summable) = 0;
  virtual void clear_sums() = 0;  ///< resets the sums for the next step
  /// Starts copying the sums to the host.
  virtual void fetch_sums() {}
  /// The sums that were fetched. Waits for the work on the stream.
  virtual MetricSums read_sums() = 0;

  /// A counter that increases when memory used by passes has moved.
  virtual std::uint64_t placement() const { return 0; }

  /// target[i] += addend[i], for gradients at a fork and for micro-batches. Both have the same type.
  virtual void accumulate(const TensorView& target, const TensorView& addend) = 0;
  /// target[i] = source[i]; both have the same type
  virtual void copy(const TensorView& target, const TensorView& source) = 0;
  virtual void fill_with_zeros(std::span<float> target) = 0;  ///< target[i] = 0
  /// target[i] = source[i], converted from float32 to the backend's precision.
  virtual void narrow(const TensorView& target, std::span<const float> source) = 0;
  /// Creates the optimizer of this replica. `arrays` must outlive it.
  virtual std::unique_ptr<Updater> updater(const OptimizerOptions& options, const ParameterTable& table,
                                           const UpdateArrays& arrays) = 0;

  /// Copies device values to host memory as float32. Waits for the work on the stream.
  virtual void read(const TensorView& source, std::span<float> target) = 0;
};

/// Creates the backend of `device`. Throws Error (device) if a GPU is not available, Error (input) for a precision that
/// the device does not support.
std::unique_ptr<Backend> make_backend(device::Device device, const ComputeOptions& options = {});

/// oneDNN and Eigen kernels in host memory. Throws Error (device) if the processor does not support what `options`
/// request.
std::unique_ptr<Backend> make_cpu_backend(device::Device device, const ComputeOptions& options);
/// Defined in cuda/cuda_backend.cpp, or in cuda/no_cuda_backend.cpp for a build without cuDNN.
std::unique_ptr<Backend> make_gpu_backend(device::Device device, const ComputeOptions& options);

}  // namespace lockstep::model
