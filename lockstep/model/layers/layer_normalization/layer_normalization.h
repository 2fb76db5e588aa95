#pragma once

#include <nlohmann/json_fwd.hpp>

#include "lockstep/model/layer/builtin_layer.h"

namespace lockstep::inline v0::model {

struct RowNormalizationSpec;

/// Normalizes each row of the last axis, then scales and shifts it: what LayerNormalization,
/// RMSNormalization and Scale share. [..., C] to [..., C]. Parameters gamma [C] and beta [C]. The
/// same in training and inference.
class RowNormalization : public BuiltinLayer {
 public:
  Shape build(BuildContext& context) const override;
  std::unique_ptr<Operation> compile_cpu(const CompileContext& context,
                                         cpu::Context& cpu) const override;
  std::unique_ptr<Operation> compile_gpu(const CompileContext& context,
                                         cuda::Context& gpu) const override;
  Traits traits() const override { return {.incremental = true, .incremental_on_gpu = true}; }

 protected:
  /// The steps of the layer.
  struct Steps {
    bool normalizes = true;  ///< divides by the deviation
    bool scales = true;      ///< multiplies by gamma
    bool shifts = true;      ///< adds beta, and first subtracts the mean if it normalizes
    bool trains = true;      ///< gamma and beta are parameters, otherwise buffers
  };
  /// `epsilon` is added before the square root.
  RowNormalization(float epsilon, const Steps& steps) : epsilon_(epsilon), steps_(steps) {}

  float epsilon_;  ///< added before the square root
  Steps steps_;    ///< what the layer computes

 private:
  RowNormalizationSpec spec(const CompileContext& context) const;
};

/// Each row minus its mean, divided by its standard deviation, then scaled by gamma and shifted by
/// beta (Ba, Kiros and Hinton, arXiv 1607.06450).
class LayerNormalization final : public RowNormalization {
 public:
  /// Options, as in Keras.
  struct Options {
    float epsilon = 1e-3f;  ///< added to the variance before the square root
  };
  LayerNormalization() : LayerNormalization(Options()) {}
  /// Epsilon is checked when the layer is added to a network.
  explicit LayerNormalization(const Options& options) : RowNormalization(options.epsilon, {}) {}

  /// Reads the options from a description (network_json.h). Throws Error (input).
  static std::shared_ptr<const Layer> read(JsonObject& object, const DataShape& data);
  /// Writes the options as read() reads them.
  void write(nlohmann::json& object) const;

  Options options() const { return {.epsilon = epsilon_}; }  ///< as constructed
  std::string kind() const override { return "layer_normalization"; }
};

/// Each row divided by the root of the mean of its squares, then scaled by gamma (Zhang and
/// Sennrich, arXiv 1910.07467).
class RMSNormalization final : public RowNormalization {
 public:
  /// Options, as in Keras.
  struct Options {
    float epsilon = 1e-6f;  ///< added to the mean of the squares before the root
  };
  RMSNormalization() : RMSNormalization(Options()) {}
  /// Epsilon is checked when the layer is added to a network.
  explicit RMSNormalization(const Options& options)
      : RowNormalization(options.epsilon, {.shifts = false}) {}

  /// Reads the options from a description (network_json.h). Throws Error (input).
  static std::shared_ptr<const Layer> read(JsonObject& object, const DataShape& data);
  /// Writes the options as read() reads them.
  void write(nlohmann::json& object) const;

  Options options() const { return {.epsilon = epsilon_}; }  ///< as constructed
  std::string kind() const override { return "rms_normalization"; }
};

/// Each row times gamma plus beta, without a normalization: the scale and bias of channels, such as
/// LayerScale (Touvron et al., arXiv 2103.17239) or what remains of an unfused batch normalization.
class Scale final : public RowNormalization {
 public:
  /// Which of the two parameters there are, one at least.
  struct Options {
    bool use_scale = true;  ///< gamma, 1 at first
    bool use_bias = true;   ///< beta, 0 at first
    bool trainable = true;  ///< otherwise both keep their values, which are buffers
  };
  Scale() : Scale(Options()) {}
  /// The options are checked when the layer is added to a network.
  explicit Scale(const Options& options)
      : RowNormalization(1, {.normalizes = false,
                             .scales = options.use_scale,
                             .shifts = options.use_bias,
                             .trains = options.trainable}) {}

  /// Reads the options from a description (network_json.h). Throws Error (input).
  static std::shared_ptr<const Layer> read(JsonObject& object, const DataShape& data);
  /// Writes the options as read() reads them.
  void write(nlohmann::json& object) const;

  /// As constructed.
  Options options() const {
    return {.use_scale = steps_.scales, .use_bias = steps_.shifts, .trainable = steps_.trains};
  }
  std::string kind() const override { return "scale"; }
};

/// A normalization of rows for one batch size.
struct RowNormalizationSpec {
  std::int64_t rows = 0;   ///< batch x all axes but the last
  std::int64_t width = 0;  ///< elements of a row
  float epsilon = 0;       ///< added to the variance before the square root
  bool normalizes = true;  ///< whether to divide by the deviation
  bool centers = true;     ///< whether to subtract the mean
  bool scales = true;      ///< whether to multiply by gamma
  bool shifts = true;      ///< whether to add beta
  bool trains = true;      ///< whether gamma and beta are parameters
  bool training = false;   ///< whether a backward pass follows

  /// Whether the gradients depend on the input.
  constexpr bool reads_input() const { return normalizes || (scales && trains); }
  /// Bytes of the statistics of all rows, which are kept from forward to backward.
  constexpr std::size_t statistics_bytes() const;
};

/// Statistics of one row, kept from forward to backward.
struct RowStatistics {
  float mean = 0;               ///< 0 if rows are not centered
  float inverse_deviation = 0;  ///< 1 / sqrt(variance + epsilon)
};

constexpr std::size_t RowNormalizationSpec::statistics_bytes() const {
  return training && normalizes ? static_cast<std::size_t>(rows) * sizeof(RowStatistics) : 0;
}

}  // namespace lockstep::inline v0::model
