#pragma once

#include <nlohmann/json_fwd.hpp>

#include "lockstep/model/layer/builtin_layer.h"

namespace lockstep::inline v0::model {

struct BatchNormalizationSpec;

/// Normalizes each channel over the batch of this replica, or of several replicas
/// (StatisticsExchange), then scales and shifts (Ioffe and Szegedy, ICML 2015). [..., C] to [...,
/// C]. Parameters gamma, beta [C]; buffers moving_mean, moving_variance [C]: moving =
/// momentum*moving + (1-momentum)*batch, the variance with Bessel's correction. Inference uses the
/// moving statistics.
class BatchNormalization final : public BuiltinLayer {
 public:
  /// Options, as in Keras.
  struct Options {
    float momentum = 0.99f;   ///< fraction of the old moving statistics that is kept in each step
    float epsilon = 1e-3f;    ///< added to the variance before the square root
    float initial_gamma = 1;  ///< initial value of gamma
  };
  BatchNormalization() : options_() {}
  /// Momentum and epsilon are checked when the layer is added to a network.
  explicit BatchNormalization(const Options& options) : options_(options) {}

  /// Reads the options from a description (network_json.h). Throws Error (input).
  static std::shared_ptr<const Layer> read(JsonObject& object, const DataShape& data);
  /// Writes the options as read() reads them.
  void write(nlohmann::json& object) const;

  const Options& options() const { return options_; }  ///< as constructed
  std::string kind() const override { return "batch_normalization"; }
  Shape build(BuildContext& context) const override;
  std::unique_ptr<Operation> compile_cpu(const CompileContext& context,
                                         cpu::Context& cpu) const override;
  std::unique_ptr<Operation> compile_gpu(const CompileContext& context,
                                         cuda::Context& gpu) const override;
  Traits traits() const override {
    return {.absorbs_relu = true,
            .absorbs_addition = true,
            .statistics = Traits::Statistics::uses,
            .keeps_buffers_if_frozen = true};
  }

 private:
  BatchNormalizationSpec spec(const CompileContext& context) const;

  Options options_;
};

/// A batch normalization for one batch size.
struct BatchNormalizationSpec {
  std::int64_t rows = 0;      ///< batch x height x width: the samples per channel
  std::int64_t channels = 0;  ///< channels, each with a mean and a variance
  float epsilon = 0;          ///< added to the variance before the square root
  float momentum = 0;         ///< fraction of the old moving statistics that is kept
  bool add = false;           ///< whether to add input 1 to the normalized input 0
  bool relu = false;          ///< whether to fuse a ReLU into the output
  bool training = false;      ///< whether a backward pass follows
  /// Uses the moving statistics: in inference, and without trained parameters. They are then
  /// constants, also in backward, and do not change.
  bool moving = false;
  /// Operands::statistics holds what the preceding convolution computed about input 0.
  bool statistics = false;
};

}  // namespace lockstep::inline v0::model
