#pragma once

#include "lockstep/model/layer.h"

namespace lockstep::model {

/// Normalizes each channel over the batch of this replica, or of several replicas (StatisticsExchange), then scales and
/// shifts (Ioffe and Szegedy, ICML 2015). [..., C] to [..., C]. Parameters gamma, beta [C]; buffers moving_mean,
/// moving_variance [C]: moving = momentum*moving + (1-momentum)*batch, the variance with Bessel's correction. Inference
/// uses the moving statistics.
class BatchNormalization final : public Layer {
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

  std::string kind() const override { return "batch_normalization"; }
  Shape build(BuildContext& context) const override;
  std::unique_ptr<Operation> compile(const CompileContext& context, Backend& backend) const override;
  Traits traits() const override {
    return {.absorbs_relu = true, .absorbs_addition = true, .statistics = Traits::Statistics::uses};
  }

 private:
  Options options_;
};

}  // namespace lockstep::model
