// The optimizers: their options, and their formulas for one element. The constants of an update are
// computed once, on the host (update_of()); the formulas are float arithmetic that CPU loops and
// GPU kernels share.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace lockstep::model {

/// One update of Sgd. Here and below, `scale` multiplies the stored gradient to give the actual
/// gradient.
struct SgdUpdate {
  float rate;      ///< learning rate
  float scale;     ///< factor on the gradient
  float decay;     ///< weight decay
  float momentum;  ///< fraction of the velocity that is kept
};

/// w -= rate * (g + decay*w)
constexpr void descend(float& w, float g, const SgdUpdate& c) {
  w -= c.rate * (g * c.scale + c.decay * w);
}

/// v = momentum*v + g; w -= rate*v
constexpr void descend_with_momentum(float& w, float& v, float g, const SgdUpdate& c) {
  v = c.momentum * v + (g * c.scale + c.decay * w);
  w -= c.rate * v;
}

/// v = momentum*v + g; w -= rate * (g + momentum*v)
constexpr void descend_with_nesterov(float& w, float& v, float g, const SgdUpdate& c) {
  const float gradient = g * c.scale + c.decay * w;
  v = c.momentum * v + gradient;
  w -= c.rate * (gradient + c.momentum * v);
}

/// Constants of the running means of the gradient and of its square, with their bias correction.
struct Moments {
  float beta1;            ///< decay rate of the mean gradient
  float one_minus_beta1;  ///< 1 - beta1
  float beta2;            ///< decay rate of the mean square
  float one_minus_beta2;  ///< 1 - beta2
  float epsilon;          ///< added to the denominator
  float root_correction;  ///< 1 / sqrt(1 - beta2^step)
};

/// Updates m and v with `gradient`.
constexpr void follow(float& m, float& v, float gradient, const Moments& c) {
  m = c.beta1 * m + c.one_minus_beta1 * gradient;
  v = c.beta2 * v + c.one_minus_beta2 * (gradient * gradient);
}

/// The denominator of a step.
constexpr float corrected_root(float v, const Moments& c) {
  return std::sqrt(v) * c.root_correction + c.epsilon;
}

/// One update of Adam, whose decay is added to the gradient, or of AdamW, whose decay shrinks the
/// parameter.
struct AdamUpdate {
  Moments moments;       ///< constants of the running means
  float corrected_rate;  ///< rate / (1 - beta1^step)
  float scale;           ///< factor on the gradient
  float l2;              ///< decay of Adam, 0 for AdamW
  float shrink;          ///< 1 - rate*decay of AdamW, 1 for Adam
};

/// w = shrink*w - corrected_rate * m / corrected_root(v), after m and v are updated with the
/// gradient.
constexpr void descend_with_moments(float& w, float& m, float& v, float g, const AdamUpdate& c) {
  const float gradient = g * c.scale + c.l2 * w;
  follow(m, v, gradient, c.moments);
  w = c.shrink * w - c.corrected_rate * m / corrected_root(v, c.moments);
}

/// One update of Lars for one layer.
struct LarsUpdate {
  float rate;               ///< learning rate, before the layer's factor
  float scale;              ///< factor on the gradient
  float decay;              ///< weight decay
  float momentum;           ///< fraction of the velocity that is kept
  float trust_coefficient;  ///< step length as a fraction of the layer's norm
  float epsilon;            ///< added to the norm of the gradient
  bool adapts;              ///< false for biases and normalization, which use `rate` unchanged
};

/// The rate of a layer, from the Euclidean norms of its parameters and of its gradient (scaled,
/// without decay).
constexpr float layer_rate(const LarsUpdate& c, double parameter_norm, double gradient_norm) {
  if (!c.adapts || !(parameter_norm > 0) || !(gradient_norm > 0)) return c.rate;
  const double trust = static_cast<double>(c.trust_coefficient) * parameter_norm /
                       (gradient_norm + static_cast<double>(c.decay) * parameter_norm +
                        static_cast<double>(c.epsilon));
  return static_cast<float>(static_cast<double>(c.rate) * trust);
}

/// v = momentum*v + layer_rate * (g + decay*w); w -= v
constexpr void descend_with_layer_rate(float& w, float& v, float g, float layer_rate,
                                       const LarsUpdate& c) {
  v = c.momentum * v + layer_rate * (g * c.scale + c.decay * w);
  w -= v;
}

/// One update of Lamb for one layer: `follow` for all elements with the scaled gradient, then the
/// norms, then `descend_along`.
struct LambUpdate {
  Moments moments;   ///< constants of the running means
  float correction;  ///< 1 / (1 - beta1^step)
  float rate;        ///< learning rate, before the layer's factor
  float scale;       ///< factor on the gradient
  float decay;       ///< weight decay
  bool adapts;       ///< false for biases and normalization, which use `rate` unchanged
};

/// The update direction of w, after `follow`.
constexpr float direction(float w, float m, float v, const LambUpdate& c) {
  return c.correction * m / corrected_root(v, c.moments) + c.decay * w;
}

/// The rate of a layer, from the Euclidean norms of its parameters and of its direction.
constexpr float layer_rate(const LambUpdate& c, double parameter_norm, double direction_norm) {
  if (!c.adapts || !(parameter_norm > 0) || !(direction_norm > 0)) return c.rate;
  return static_cast<float>(static_cast<double>(c.rate) * (parameter_norm / direction_norm));
}

/// w -= layer_rate * direction
constexpr void descend_along(float& w, float m, float v, float layer_rate, const LambUpdate& c) {
  w -= layer_rate * direction(w, m, v, c);
}

// The options of the optimizers, and the constants of one update. `learning_rate` is read by
// Trainer, where it replaces Schedule::peak; updates take the rate of their UpdateContext.

/// v = momentum*v + g; w -= rate*v, or with Nesterov w -= rate*(g + momentum*v) (Sutskever et al.,
/// ICML 2013). L2 decay is added to g.
struct Sgd {
  float momentum = 0;  ///< fraction of the velocity that is kept in each step; 0 disables momentum
  bool nesterov = false;   ///< whether to use Nesterov momentum
  float weight_decay = 0;  ///< L2 decay, for arrays with decay; added to the gradient
  std::optional<float> learning_rate = {};  ///< peak of the schedule; none: Schedule::peak
};

/// Kingma and Ba, ICLR 2015, with bias correction; epsilon outside the root. L2 decay is added to
/// g.
struct Adam {
  float beta1 = 0.9f;      ///< decay rate of the mean gradient
  float beta2 = 0.999f;    ///< decay rate of the mean square
  float epsilon = 1e-7f;   ///< added to the root of the mean square
  float weight_decay = 0;  ///< L2 decay, for arrays with decay; added to the gradient
  std::optional<float> learning_rate = {};  ///< peak of the schedule; none: Schedule::peak
};

/// Adam with decoupled decay, w -= rate*decay*w (Loshchilov and Hutter, ICLR 2019).
struct AdamW {
  float beta1 = 0.9f;     ///< decay rate of the mean gradient
  float beta2 = 0.999f;   ///< decay rate of the mean square
  float epsilon = 1e-7f;  ///< added to the root of the mean square
  /// For arrays with decay; shrinks the parameters, decoupled from the gradient.
  float weight_decay = 0.01f;
  std::optional<float> learning_rate = {};  ///< peak of the schedule; none: Schedule::peak
};

/// Layer-wise adaptive rates for large batches (You, Gitman and Ginsburg, arXiv 1708.03888): each
/// layer's rate is multiplied by trust = trust_coefficient * |w| / (|g| + decay*|w| + epsilon),
/// then v = momentum*v + rate*trust*(g + decay*w); w -= v. The rate is part of v, so a change of
/// the rate takes effect slowly, as in the paper. Biases and normalization have no decay and
/// trust 1. Trust is also 1 if |w| or |g| is 0.
struct Lars {
  float momentum = 0.9f;                    ///< fraction of the velocity that is kept in each step
  float weight_decay = 5e-4f;               ///< for arrays with decay; added to the gradient
  float trust_coefficient = 1e-3f;          ///< step length as a fraction of the layer's norm
  float epsilon = 1e-9f;                    ///< added to the norm of the gradient
  std::optional<float> learning_rate = {};  ///< peak of the schedule; none: Schedule::peak
};

/// Layer-wise adaptive rates for Adam (You et al., ICLR 2020, Algorithm 2, phi the identity): u =
/// Adam's step of rate 1 with bias correction + decay*w; w -= rate * |w|/|u| * u. Biases and
/// normalization have no decay and ratio 1. The ratio is also 1 if |w| or |u| is 0.
struct Lamb {
  float beta1 = 0.9f;                       ///< decay rate of the mean gradient
  float beta2 = 0.999f;                     ///< decay rate of the mean square
  float epsilon = 1e-6f;                    ///< added to the root of the mean square
  float weight_decay = 0.01f;               ///< for arrays with decay; added to the direction
  std::optional<float> learning_rate = {};  ///< peak of the schedule; none: Schedule::peak
};

/// One of the optimizers with its constants.
using OptimizerOptions = std::variant<Sgd, Adam, AdamW, Lars, Lamb>;

std::string to_string(const OptimizerOptions& options);  ///< the name used by `--optimizer`

/// Throws Error (input) for a constant out of range.
void check_options(const OptimizerOptions& options);

/// Names of the arrays stored in addition to the parameters: "momentum" (Lars: "velocity"), or "m"
/// and "v".
std::vector<std::string> slot_names(const OptimizerOptions& options);

/// Whether an update needs the norms of each parameter tensor.
bool is_layer_wise(const OptimizerOptions& options);

/// The arguments of one update.
struct UpdateContext {
  float learning_rate = 0;   ///< of this update
  std::int64_t step = 1;     ///< counted from 1; used for bias correction
  float gradient_scale = 1;  ///< factor on the stored gradients
  bool decays = true;  ///< whether the parameters have decay: neither biases nor normalization
};

/// The constants of one update for the formulas above, the same for every backend.
SgdUpdate update_of(const Sgd& sgd, const UpdateContext& context);
/// Constants of one Adam update.
AdamUpdate update_of(const Adam& adam, const UpdateContext& context);
/// Constants of one AdamW update.
AdamUpdate update_of(const AdamW& adamw, const UpdateContext& context);
/// Constants of one Lars update, shared by all layers.
LarsUpdate update_of(const Lars& lars, const UpdateContext& context);
/// Constants of one Lamb update, shared by all layers.
LambUpdate update_of(const Lamb& lamb, const UpdateContext& context);

}  // namespace lockstep::model
