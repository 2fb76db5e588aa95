#pragma once

#include <nlohmann/json_fwd.hpp>

#include "lockstep/model/layer/builtin_layer.h"

namespace lockstep::inline v0::model {

struct RowNormalizationSpec;

/// Normalizes each row of the last axis, then scales it: what LayerNormalization and
/// RMSNormalization share. [..., C] to [..., C]. Parameter gamma [C], and beta [C] if rows are
/// centered. The same in training and inference.
class RowNormalization : public BuiltinLayer {
 public:
  /// Writes the options as read() of the layer reads them.
  void write(nlohmann::json& object) const;

  Shape build(BuildContext& context) const override;
  std::unique_ptr<Operation> compile_cpu(const CompileContext& context,
                                         cpu::Context& cpu) const override;
  std::unique_ptr<Operation> compile_gpu(const CompileContext& context,
                                         cuda::Context& gpu) const override;
  Traits traits() const override { return {.incremental = true, .incremental_on_gpu = true}; }

 protected:
  /// `epsilon` is added before the square root; `centers`: whether to subtract the mean and add
  /// beta.
  RowNormalization(float epsilon, bool centers) : epsilon_(epsilon), centers_(centers) {}

 private:
  RowNormalizationSpec spec(const CompileContext& context) const;

  float epsilon_;
  bool centers_;
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
  explicit LayerNormalization(const Options& options) : RowNormalization(options.epsilon, true) {}

  /// Reads the options from a description (network_json.h). Throws Error (input).
  static std::shared_ptr<const Layer> read(JsonObject& object, const DataShape& data);

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
  explicit RMSNormalization(const Options& options) : RowNormalization(options.epsilon, false) {}

  /// Reads the options from a description (network_json.h). Throws Error (input).
  static std::shared_ptr<const Layer> read(JsonObject& object, const DataShape& data);

  std::string kind() const override { return "rms_normalization"; }
};

/// A normalization of rows for one batch size.
struct RowNormalizationSpec {
  std::int64_t rows = 0;   ///< batch x all axes but the last
  std::int64_t width = 0;  ///< elements of a row
  float epsilon = 0;       ///< added to the variance before the square root
  bool centers = true;     ///< whether to subtract the mean, and to add beta
  bool training = false;   ///< whether a backward pass follows
};

/// Statistics of one row, kept from forward to backward.
struct RowStatistics {
  float mean = 0;               ///< 0 if rows are not centered
  float inverse_deviation = 0;  ///< 1 / sqrt(variance + epsilon)
};

}  // namespace lockstep::inline v0::model
