// Which optimizer, with which constants, and the numbers of one of its updates.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "model/optimizer_math.h"

namespace lockstep::model {

/// v = momentum*v + g; w -= rate*v, or with Nesterov w -= rate*(g + momentum*v) (Sutskever et al., ICML 2013). L2 decay
/// is added to g.
struct Sgd {
  float momentum = 0;      ///< part of the velocity that is kept in each step; 0 for none
  bool nesterov = false;   ///< whether the gradient is that of the place where the momentum leads
  float weight_decay = 0;  ///< of arrays that decay; enters the gradient
};

/// Kingma and Ba, ICLR 2015, with bias correction; epsilon outside the root. L2 decay is added to g.
struct Adam {
  float beta1 = 0.9f;      ///< part of the mean gradient that is kept in each step
  float beta2 = 0.999f;    ///< part of the mean square that is kept in each step
  float epsilon = 1e-7f;   ///< added to the root of the mean square
  float weight_decay = 0;  ///< of arrays that decay; enters the gradient
};

/// Adam with decoupled decay, w -= rate*decay*w (Loshchilov and Hutter, ICLR 2019).
struct AdamW {
  float beta1 = 0.9f;          ///< part of the mean gradient that is kept in each step
  float beta2 = 0.999f;        ///< part of the mean square that is kept in each step
  float epsilon = 1e-7f;       ///< added to the root of the mean square
  float weight_decay = 0.01f;  ///< of arrays that decay; shrinks the parameters, apart from the gradient
};

/// Layer-wise adaptive rates for large batches (You, Gitman and Ginsburg, arXiv 1708.03888): each layer's rate is
/// multiplied by trust = trust_coefficient * |w| / (|g| + decay*|w| + epsilon), then v = momentum*v + rate*trust*(g +
/// decay*w); w -= v. The rate lies inside v, so a change of rate takes effect slowly, as in the paper. Biases and
/// normalization have no decay and trust 1; trust is 1 also where |w| or |g| is 0.
struct Lars {
  float momentum = 0.9f;            ///< part of the velocity that is kept in each step
  float weight_decay = 5e-4f;       ///< of arrays that decay; enters the gradient
  float trust_coefficient = 1e-3f;  ///< length of a step, as a part of the layer's norm
  float epsilon = 1e-9f;            ///< added to the norm of the gradient
};

/// The same idea for Adam (You et al., ICLR 2020, Algorithm 2, phi the identity): u = Adam's step of rate 1 with bias
/// correction + decay*w; w -= rate * |w|/|u| * u. Biases and normalization have no decay and ratio 1; the ratio is 1
/// also where |w| or |u| is 0.
struct Lamb {
  float beta1 = 0.9f;          ///< part of the mean gradient that is kept in each step
  float beta2 = 0.999f;        ///< part of the mean square that is kept in each step
  float epsilon = 1e-6f;       ///< added to the root of the mean square
  float weight_decay = 0.01f;  ///< of arrays that decay; enters the direction
};

using OptimizerOptions = std::variant<Sgd, Adam, AdamW, Lars, Lamb>;  ///< One of the optimizers with its numbers.

std::string to_string(const OptimizerOptions& options);  ///< its name, as `--optimizer` knows it

/// Throws Error (input) for a constant out of its range.
void check_options(const OptimizerOptions& options);

/// Names of the arrays that are kept beside the parameters: "momentum" (Lars: "velocity"), or "m" and "v".
std::vector<std::string> slot_names(const OptimizerOptions& options);

/// Whether an update needs norms of each parameter tensor.
bool is_layer_wise(const OptimizerOptions& options);

/// What one update is called with.
struct UpdateContext {
  float learning_rate = 0;   ///< of this update
  std::int64_t step = 1;     ///< counted from 1; enters bias correction
  float gradient_scale = 1;  ///< what stored gradients are multiplied by
  bool decays = true;        ///< whether the parameters at hand are neither biases nor normalization
};

/// The numbers that the formulas of optimizer_math.h take, the same for every backend.
SgdUpdate update_of(const Sgd& sgd, const UpdateContext& context);
/// The numbers of one update, made once for all elements.
AdamUpdate update_of(const Adam& adam, const UpdateContext& context);
AdamUpdate update_of(const AdamW& adamw, const UpdateContext& context);  ///< the same for AdamW
/// The same for Lars, whose layers then have rates of their own.
LarsUpdate update_of(const Lars& lars, const UpdateContext& context);
/// The same for Lamb, whose layers then have rates of their own.
LambUpdate update_of(const Lamb& lamb, const UpdateContext& context);

}  // namespace lockstep::model
