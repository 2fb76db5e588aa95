// How the statistics of batch normalization come to be those of several replicas: the model asks, whoever knows the
// others answers.
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

/// Replicas that normalize together. All members make the same calls with the same counts in the same order, also those
/// without samples in a pass. Called on the thread of the model.
class StatisticsExchange {
 public:
  virtual ~StatisticsExchange() = default;

  virtual int members() const = 0;  ///< replicas whose samples are normalized together
  virtual int member() const = 0;   ///< 0 .. members() - 1; this one's number
  /// values[i] becomes its sum over the members: the same bits on all of them. `values` lie in the memory of the
  /// model's device; the sum takes its turn on the stream of the model's backend. Throws Error (communication).
  virtual void sum(std::span<float> values) = 0;
};

// What a device supplies to a plan: one operation per layer kind. Control flow, shapes and memory are the plan's.

/// A convolution, of one batch size.
struct Conv2DSpec {
  std::int64_t batch = 0;       ///< samples
  WindowGeometry window;        ///< of inputs, kernel and outputs
  std::int64_t filters = 0;     ///< output channels
  std::int64_t groups = 1;      ///< of channels, each with filters of its own
  bool bias = true;             ///< whether one is added to each output channel
  bool relu = false;            ///< fused into the output
  bool training = false;        ///< whether backward follows
  bool input_gradient = false;  ///< whether backward has to write the input's gradient
  bool statistics = false;      ///< a normalization alone reads the output; only where Backend::fuses_statistics()
};

/// A dense layer, of one batch size.
struct DenseSpec {
  std::int64_t batch = 0;       ///< samples
  std::int64_t inputs = 0;      ///< elements of one sample
  std::int64_t units = 0;       ///< outputs of one sample
  bool bias = true;             ///< whether one is added to each unit
  bool relu = false;            ///< fused into the output
  bool training = false;        ///< whether backward follows
  bool input_gradient = false;  ///< whether backward has to write the input's gradient
};

/// A pooling, of one batch size.
struct Pool2DSpec {
  /// The largest element of each window, or the mean of those that are not padding.
  enum class Kind { max, average };
  Kind kind = Kind::max;   ///< which of the two
  std::int64_t batch = 0;  ///< samples
  WindowGeometry window;   ///< of inputs, window and outputs
  bool training = false;   ///< whether backward follows
};

/// A batch normalization, of one batch size.
struct BatchNormalizationSpec {
  std::int64_t rows = 0;      ///< batch x height x width: the samples of each channel's statistics
  std::int64_t channels = 0;  ///< each with a mean and a variance
  float epsilon = 0;          ///< added to the variance before its root
  float momentum = 0;         ///< part of the old moving statistics that is kept
  bool add = false;           ///< input 1 is added to the normalized input 0; only where Backend::fuses_additions()
  bool relu = false;          ///< fused into the output
  /// Whether statistics are the batch's, and backward follows; otherwise they are the moving ones.
  bool training = false;
  bool statistics = false;  ///< Operands::statistics are what the convolution before has found about input 0
};

/// A dropout, of one batch size; training only.
struct DropoutSpec {
  std::string layer;          ///< its name keys the mask
  std::int64_t batch = 0;     ///< samples
  std::int64_t features = 0;  ///< elements of one sample
  float rate = 0;             ///< part of the elements that becomes 0
};

/// How the loss of a part enters gradients.
struct GradientScale {
  std::int64_t divisor = 0;  ///< samples of the global batch
  float loss_scale = 1;      ///< what gradients are multiplied by, so that those of 16 bits do not vanish
};

/// Kernels of one device for one replica. All work is put on stream() in the order of the calls, and is done when the
/// call returns where runs_on_host().
class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string name() const = 0;  ///< for people: "oneDNN"
  /// Whether passes are done when their calls return, and operands are the host's memory.
  virtual bool runs_on_host() const = 0;
  virtual Precision precision() const = 0;  ///< the type of activations, their gradients and `weights`
  /// Whether its batch normalization can add a second input.
  virtual bool fuses_additions() const { return false; }
  /// Whether its convolutions may find what a batch normalization needs to know of its input.
  virtual bool fuses_statistics() const { return false; }
  virtual device::Allocator& allocator() = 0;  ///< gives the memory of passes, on this backend's device
  /// Bytes that the allocator can still give; of the host, where the system decides, without a limit.
  virtual std::size_t free_bytes() { return std::numeric_limits<std::size_t>::max(); }
  virtual device::Stream& stream() = 0;  ///< where all work is put

  virtual std::unique_ptr<Operation> conv_2d(const Conv2DSpec& spec) = 0;  ///< the kernels of one convolution
  virtual std::unique_ptr<Operation> dense(const DenseSpec& spec) = 0;     ///< the kernels of one dense layer
  virtual std::unique_ptr<Operation> pool_2d(const Pool2DSpec& spec) = 0;  ///< the kernels of one pooling
  /// The kernels of one batch normalization.
  virtual std::unique_ptr<Operation> batch_normalization(const BatchNormalizationSpec& spec) = 0;
  /// The kernels of max(x, 0), of `elements` elements in all.
  virtual std::unique_ptr<Operation> relu(std::int64_t elements, bool training) = 0;
  virtual std::unique_ptr<Operation> dropout(const DropoutSpec& spec) = 0;  ///< the kernels of one dropout
  /// The kernels of a sum of two inputs, with max(x, 0) of it where `relu`.
  virtual std::unique_ptr<Operation> add(bool relu) = 0;
  /// The kernels of a softmax over each of `rows` rows of `width` elements.
  virtual std::unique_ptr<Operation> softmax(std::int64_t rows, std::int64_t width, bool training) = 0;

  /// Takes what the next pass depends on; before the pass, and not part of what may be recorded and repeated.
  virtual void begin_pass(const PassContext& pass, const GradientScale& scale) = 0;

  /// Begins to bring a batch here, beside the work on the stream, for the next load() with `staged`. Others may come
  /// between. Does nothing where the batch is read where it lies.
  virtual void stage(const BatchView& /*batch*/) {}
  /// Brings a batch to where the pass finds it: `input` becomes its features in the plan's type, where it is not empty.
  /// Returns the features: `input`, or where they lie in host memory. Not part of what may be recorded either.
  virtual TensorView load(const TensorView& input, const BatchView& batch, bool staged) = 0;

  /// Loss and metrics of `outputs` [samples, width] and the targets loaded last, added to the sums of the step; the
  /// gradient of the outputs, scaled as begin_pass() said, where `gradient` is not empty. compute_loss() is its
  /// meaning.
  virtual void compute_loss(const Loss& loss, const TensorView& outputs, std::int64_t samples,
                            const TensorView& gradient) = 0;
  /// Sums since clear_sums(), as floats that may be summed over replicas (MetricSums::write), at `summable` on this
  /// device.
  virtual void write_sums(std::span<float> summable) = 0;
  virtual void clear_sums() = 0;  ///< begins the sums of the next step with zero
  /// Puts the sums on their way to the host.
  virtual void fetch_sums() {}
  /// The sums as they were fetched; waits for the work on the stream.
  virtual MetricSums read_sums() = 0;

  /// Grows when memory that passes use has moved.
  virtual std::uint64_t placement() const { return 0; }

  /// target[i] += addend[i]; for gradients that meet at a fork, and for micro-batches. Of one type.
  virtual void accumulate(const TensorView& target, const TensorView& addend) = 0;
  virtual void copy(const TensorView& target, const TensorView& source) = 0;  ///< target[i] = source[i]; of one type
  virtual void fill_with_zeros(std::span<float> target) = 0;                  ///< target[i] = 0
  /// target[i] = source[i], from float32 to the backend's precision.
  virtual void narrow(const TensorView& target, std::span<const float> source) = 0;
  /// The optimizer of this replica, over arrays that outlive it.
  virtual std::unique_ptr<Updater> updater(const OptimizerOptions& options, const ParameterTable& table,
                                           const UpdateArrays& arrays) = 0;

  /// Values of the device as float32 in host memory; waits for the work on the stream.
  virtual void read(const TensorView& source, std::span<float> target) = 0;
};

/// The backend of `device`. Throws Error (device) for a GPU that is not available, Error (input) for a precision that
/// the device lacks.
std::unique_ptr<Backend> make_backend(device::Device device, const ComputeOptions& options = {});

/// OneDNN's and Eigen's kernels, in the memory of the host. Throws Error (device) where the processor lacks what
/// `options` ask for.
std::unique_ptr<Backend> make_cpu_backend(device::Device device, const ComputeOptions& options);
/// cuda/cuda_backend.cpp, or cuda/no_cuda_backend.cpp of a build without cuDNN.
std::unique_ptr<Backend> make_gpu_backend(device::Device device, const ComputeOptions& options);

}  // namespace lockstep::model
