// The losses. Each is a struct with its names, its hyperparameters and, if it is a mean over the
// outputs of a sample, the formulas for one output, which CPU loops and GPU kernels share. Names,
// options, loops and kernels follow from the list of types, Loss.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep::inline v0::model {

// With `kActivation` the outputs of the network are logits. Infinite logits have the loss and the
// gradient of their limit.

/// logit - largest, for a softmax in which no exponential overflows; 0 for the largest logit also
/// if it is infinite. Equal infinite logits share the probability, as finite ones do.
constexpr float below_largest(float logit, float largest) {
  return logit == largest ? 0 : logit - largest;
}

/// Cross-entropy between softmax(logits) and class labels, with label smoothing: the target of the
/// true class is 1 - s + s/K, of the others s/K (Szegedy et al., CVPR 2016).
struct SparseCategoricalCrossentropy {
  static constexpr std::string_view kName =
      "sparse-categorical-crossentropy";                           ///< in `--loss` and checkpoints
  static constexpr std::string_view kShortName = "cross-entropy";  ///< also accepted
  static constexpr std::string_view kActivation = "softmax";       ///< applied to the outputs
  float label_smoothing = 0;  ///< target mass distributed over all classes, from 0 to less than 1
};

/// Mean of the squared differences between the outputs of a sample and its targets.
struct MeanSquaredError {
  static constexpr std::string_view kName = "mean-squared-error";  ///< in `--loss` and checkpoints
  static constexpr std::string_view kShortName = "mse";            ///< also accepted
  static constexpr std::string_view kActivation = "";              ///< applied to the outputs

  /// The loss of one output; that of a sample is the mean over its outputs.
  constexpr double value(float output, float target) const {
    const auto difference = static_cast<double>(output - target);
    return difference * difference;
  }
  /// d value / d output
  constexpr float derivative(float output, float target) const { return 2 * (output - target); }
};

/// Cross-entropy between sigmoid(logit) and a target from 0 to 1, mean over the outputs of a
/// sample; with one output, the targets may be class labels 0 and 1. Label smoothing moves targets
/// towards 1/2: t (1 - s) + s/2.
struct BinaryCrossentropy {
  static constexpr std::string_view kName = "binary-crossentropy";  ///< in `--loss` and checkpoints
  static constexpr std::string_view kShortName = "bce";             ///< also accepted
  static constexpr std::string_view kActivation = "sigmoid";        ///< applied to the outputs
  float label_smoothing = 0;                                        ///< from 0 to less than 1

  /// The smoothed value of `target`.
  constexpr float smoothed(float target) const {
    return target * (1 - label_smoothing) + label_smoothing / 2;
  }
  /// max(z, 0) - z t + log(1 + exp(-|z|)), in which no exponential overflows
  constexpr double value(float output, float target) const {
    const float t = smoothed(target);
    const float factor = output > 0 ? 1 - t : t;
    // An infinite logit on the side of its target: infinity times 0 is NaN.
    const float linear = factor == 0 ? 0 : factor * (output > 0 ? output : -output);
    return static_cast<double>(linear) +
           static_cast<double>(std::log1p(std::exp(output > 0 ? -output : output)));
  }
  /// sigmoid(z) - t
  constexpr float derivative(float output, float target) const {
    const float small = std::exp(output > 0 ? -output : output);
    return (output > 0 ? 1 / (1 + small) : small / (1 + small)) - smoothed(target);
  }
  /// Number of classes ranked above the true one: 0 if the prediction, class 1 for a logit above 0,
  /// is correct. A NaN is never correct.
  constexpr std::int64_t rank(float output, float target) const {
    return (target > 0.5F ? output > 0 : output <= 0) ? 0 : 1;
  }
};

/// Cross-entropy between softmax(logits) and a distribution over the classes, with label smoothing
/// as SparseCategoricalCrossentropy.
struct CategoricalCrossentropy {
  static constexpr std::string_view kName =
      "categorical-crossentropy";                             ///< in `--loss` and checkpoints
  static constexpr std::string_view kShortName = "cce";       ///< also accepted
  static constexpr std::string_view kActivation = "softmax";  ///< applied to the outputs
  float label_smoothing = 0;                                  ///< from 0 to less than 1

  /// The smoothed value of `target`, one of `classes`.
  constexpr float smoothed(float target, float classes) const {
    return target * (1 - label_smoothing) + label_smoothing / classes;
  }
};

/// Mean of the absolute differences between the outputs of a sample and its targets.
struct MeanAbsoluteError {
  static constexpr std::string_view kName = "mean-absolute-error";  ///< in `--loss` and checkpoints
  static constexpr std::string_view kShortName = "mae";             ///< also accepted
  static constexpr std::string_view kActivation = "";               ///< applied to the outputs

  /// |output - target|
  constexpr double value(float output, float target) const {
    return static_cast<double>(output > target ? output - target : target - output);
  }
  /// The sign of the difference; 0 for none.
  constexpr float derivative(float output, float target) const {
    const float difference = output - target;
    return difference > 0 ? 1 : difference < 0 ? -1 : difference;  // the last: 0, or NaN
  }
};

/// Quadratic for differences up to delta and linear above: d^2 / 2, or delta (|d| - delta / 2);
/// mean over the outputs of a sample (Huber, 1964).
struct Huber {
  static constexpr std::string_view kName = "huber";   ///< in `--loss` and checkpoints
  static constexpr std::string_view kShortName = "";   ///< also accepted
  static constexpr std::string_view kActivation = "";  ///< applied to the outputs
  float delta = 1;                                     ///< above 0

  /// The loss of one output.
  constexpr double value(float output, float target) const {
    const auto size = static_cast<double>(output > target ? output - target : target - output);
    const auto limit = static_cast<double>(delta);
    return size <= limit ? size * size / 2 : limit * (size - limit / 2);
  }
  /// The difference, at most delta.
  constexpr float derivative(float output, float target) const {
    const float difference = output - target;
    return difference > delta ? delta : difference < -delta ? -delta : difference;
  }
};

/// A loss whose value is the mean of value(output, target) over the outputs of a sample, such as
/// MeanSquaredError.
template <typename T>
concept ElementwiseLoss = requires(const T& loss, float x) {
  { loss.value(x, x) } -> std::same_as<double>;
  { loss.derivative(x, x) } -> std::same_as<float>;
};

/// The targets of one sample.
struct SampleTargets {
  std::int32_t label = 0;              ///< if the data set has classes
  std::span<const float> values = {};  ///< if it has targets
};

struct Targets;

/// A user-defined loss. It runs on the CPU only, from several threads.
class CustomLoss {
 public:
  virtual ~CustomLoss() = default;
  virtual std::string name() const { return "custom_loss"; }  ///< in logs and errors
  /// What the outputs are, for accuracy and metrics: "softmax" for a logit per class, "sigmoid" for
  /// logits of "yes", empty for values. Targets of logits are labels, or a value per output.
  virtual std::string_view activation() const { return {}; }
  /// The loss of one sample with these outputs of the network.
  virtual double value(std::span<const float> outputs, const SampleTargets& targets) const = 0;
  /// Writes d value / d outputs to `gradient`.
  virtual void gradient(std::span<const float> outputs, const SampleTargets& targets,
                        std::span<float> gradient) const = 0;
  /// The losses of the samples of a batch, and their gradients unless `gradients` is empty: both
  /// `outputs` and `gradients` are [samples, width]. Results of samples of weight 0 are ignored.
  /// The default calls value() and gradient() for each other sample. Override it to compute samples
  /// together; the loss of a sample must not depend on others.
  virtual void evaluate(std::span<const float> outputs, const Targets& targets,
                        std::span<double> losses, std::span<float> gradients) const;
};
/// Shared by all replicas.
using CustomLossPointer = std::shared_ptr<const CustomLoss>;

/// The loss that training minimizes. The built-in losses are in the order of help texts and errors.
using Loss = std::variant<SparseCategoricalCrossentropy, MeanSquaredError, BinaryCrossentropy,
                          CategoricalCrossentropy, MeanAbsoluteError, Huber, CustomLossPointer>;

/// The names that parse_loss() lists.
std::vector<std::string_view> loss_names();
/// Parses a name, and hyperparameters after a colon: "huber:delta=2". Throws Error (input).
Loss parse_loss(std::string_view text);
/// The name in `--loss` and in checkpoints, or CustomLoss::name().
std::string name_of(const Loss& loss);
/// The shortest text that parse_loss() accepts, such as "mse" or "huber:delta=2"; the name of a
/// CustomLoss.
std::string to_string(const Loss& loss);
/// Name and address of each hyperparameter.
std::vector<std::pair<std::string_view, float*>> loss_parameters(Loss& loss);
/// Throws Error (input) for a hyperparameter out of range, and for a CustomLoss that is null.
void check_options(const Loss& loss);

/// The number of elements, in an output of this shape, that are compared with one target: the last
/// extent with class labels, so that [T, V] has T positions; otherwise all.
std::int64_t row_width(const Loss& loss, std::span<const std::int64_t> shape);
/// The number of classes that a network with `outputs` outputs (row_width()) distinguishes; 0 if
/// the loss has no classes, so that there is no accuracy.
std::int64_t class_count(const Loss& loss, std::int64_t outputs);
/// "softmax" or "sigmoid" if the outputs are logits, otherwise empty.
std::string_view activation_of(const Loss& loss);
/// Throws Error (input) for a loss that runs on the CPU only.
void check_runs_on_gpu(const Loss& loss);

}  // namespace lockstep::inline v0::model
