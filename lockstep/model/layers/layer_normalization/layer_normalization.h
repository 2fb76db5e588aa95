#pragma once

#include <nlohmann/json_fwd.hpp>

#include "lockstep/model/layers/builtin_layer.h"

namespace lockstep::model {

struct LayerNormalizationSpec;

/// Normalizes each row of the last axis, then scales and shifts (Ba, Kiros and Hinton, arXiv
/// 1607.06450). [..., C] to [..., C]. Parameters gamma, beta [C]. The same in training and
/// inference.
class LayerNormalization final : public BuiltinLayer {
 public:
  /// Options, as in Keras.
  struct Options {
    float epsilon = 1e-3f;  ///< added to the variance before the square root
  };
  LayerNormalization() : options_() {}
  /// Epsilon is checked when the layer is added to a network.
  explicit LayerNormalization(const Options& options) : options_(options) {}

  /// Reads the options from a description (network_json.h). Throws Error (input).
  static std::shared_ptr<const Layer> read(JsonObject& object, const DataShape& data);
  /// Writes the options as read() reads them.
  void write(nlohmann::json& object) const;

  std::string kind() const override { return "layer_normalization"; }
  Shape build(BuildContext& context) const override;
  std::unique_ptr<Operation> compile_cpu(const CompileContext& context,
                                         cpu::Context& cpu) const override;
  std::unique_ptr<Operation> compile_gpu(const CompileContext& context,
                                         cuda::Context& gpu) const override;

 private:
  LayerNormalizationSpec spec(const CompileContext& context) const;

  Options options_;
};

/// A layer normalization for one batch size.
struct LayerNormalizationSpec {
  std::int64_t rows = 0;   ///< batch x all axes but the last
  std::int64_t width = 0;  ///< elements of a row
  float epsilon = 0;       ///< added to the variance before the square root
  bool training = false;   ///< whether a backward pass follows
};

/// Of one row, kept from forward to backward.
struct RowStatistics {
  float mean = 0;               ///< of its elements
  float inverse_deviation = 0;  ///< 1 / sqrt(variance + epsilon)
};

}  // namespace lockstep::model
