// Optimizers over flat arrays: one pass, one formula for every parameter.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "model/parameters.h"

namespace lockstep::model {

/// v = momentum*v + g; w -= rate*v, or with Nesterov w -= rate*(g + momentum*v) (Sutskever et al., ICML 2013). L2 decay
/// is added to g.
struct Sgd {
  float momentum = 0;
  bool nesterov = false;
  float weight_decay = 0;
};

/// Kingma and Ba, ICLR 2015, with bias correction; epsilon outside the root. L2 decay is added to g.
struct Adam {
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-7f;
  float weight_decay = 0;
};

/// Adam with decoupled decay, w -= rate*decay*w (Loshchilov and Hutter, ICLR 2019).
struct AdamW {
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-7f;
  float weight_decay = 0.01f;
};

using OptimizerOptions = std::variant<Sgd, Adam, AdamW>;

std::string to_string(const OptimizerOptions& options);

/// One replica's optimizer: its slots are flat arrays with the layout of the parameters.
class Optimizer {
 public:
  /// `table` is copied in what matters: flat size and the ranges where decay applies.
  Optimizer(OptimizerOptions options, const ParameterTable& table);

  /// Updates `parameters` from `gradients` * `gradient_scale`, both flat arrays of the table's size. `step` counts
  /// updates from 1 and enters Adam's bias correction. Decay applies only to entries that want it. One pass over
  /// memory.
  void apply(std::span<float> parameters, std::span<const float> gradients, float learning_rate, std::int64_t step,
             float gradient_scale = 1);

  /// Slot arrays for checkpoints: "momentum", or "m" and "v". Flat, padding included.
  std::vector<std::string> slot_names() const;
  std::span<float> slot(std::string_view name);

  const OptimizerOptions& options() const { return options_; }

 private:
  struct DecayRange {
    std::size_t begin = 0;
    std::size_t end = 0;
    bool decay = false;
  };
  OptimizerOptions options_;
  std::vector<DecayRange> ranges_;
  std::vector<std::vector<float>> slots_;
};

/// Euclidean norm of a flat gradient, summed in double in a fixed order.
double global_norm(std::span<const float> gradients);

/// The factor that brings a gradient of norm `norm` to at most `limit`; 1 where it is within, or where limit is 0 (no
/// clipping).
float clip_scale(double norm, double limit);

}  // namespace lockstep::model
