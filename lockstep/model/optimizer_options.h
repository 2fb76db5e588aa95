// The optimizers' formulas for one element. The numbers of an update are made once, on the host (update_of in
// optimizer_options.h); what is here is arithmetic on floats that loops of the CPU and kernels of a GPU call alike.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace lockstep::model {

/// One update of Sgd. `scale` brings the stored gradient to the one that is meant, here and below.
struct SgdUpdate {
  float rate;      ///< learning rate
  float scale;     ///< of the gradient
  float decay;     ///< weight decay
  float momentum;  ///< part of the velocity that is kept
};

/// w -= rate * (g + decay*w)
constexpr void descend(float& w, float g, const SgdUpdate& c) { w -= c.rate * (g * c.scale + c.decay * w); }

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

/// The running means of the gradient and of its square, and what makes up for their start at 0.
struct Moments {
  float beta1;            ///< part of the mean gradient that is kept
  float one_minus_beta1;  ///< 1 - beta1
  float beta2;            ///< part of the mean square that is kept
  float one_minus_beta2;  ///< 1 - beta2
  float epsilon;          ///< added to what a step is divided by
  float root_correction;  ///< 1 / sqrt(1 - beta2^step)
};

/// m and v with `gradient` in them.
constexpr void follow(float& m, float& v, float gradient, const Moments& c) {
  m = c.beta1 * m + c.one_minus_beta1 * gradient;
  v = c.beta2 * v + c.one_minus_beta2 * (gradient * gradient);
}

/// What a step is divided by.
constexpr float corrected_root(float v, const Moments& c) { return std::sqrt(v) * c.root_correction + c.epsilon; }

/// One update of Adam, whose decay enters the gradient, or of AdamW, whose decay shrinks the parameter.
struct AdamUpdate {
  Moments moments;       ///< how means are followed
  float corrected_rate;  ///< rate / (1 - beta1^step)
  float scale;           ///< of the gradient
  float l2;              ///< decay of Adam, 0 for AdamW
  float shrink;          ///< 1 - rate*decay of AdamW, 1 for Adam
};

/// W = shrink*w - corrected_rate * m / corrected_root(v), after m and v follow the gradient.
constexpr void descend_with_moments(float& w, float& m, float& v, float g, const AdamUpdate& c) {
  const float gradient = g * c.scale + c.l2 * w;
  follow(m, v, gradient, c.moments);
  w = c.shrink * w - c.corrected_rate * m / corrected_root(v, c.moments);
}

/// One update of Lars for one layer.
struct LarsUpdate {
  float rate;               ///< learning rate, before that of the layer
  float scale;              ///< of the gradient
  float decay;              ///< weight decay
  float momentum;           ///< part of the velocity that is kept
  float trust_coefficient;  ///< length of a step, as a part of the layer's norm
  float epsilon;            ///< added to the norm of the gradient
  bool adapts;              ///< false for biases and normalization, whose rate is the plain one
};

/// The layer's own rate, from the Euclidean norms of its parameters and of its gradient (scaled, without decay).
constexpr float layer_rate(const LarsUpdate& c, double parameter_norm, double gradient_norm) {
  if (!c.adapts || !(parameter_norm > 0) || !(gradient_norm > 0)) return c.rate;
  const double trust = static_cast<double>(c.trust_coefficient) * parameter_norm /
                       (gradient_norm + static_cast<double>(c.decay) * parameter_norm + static_cast<double>(c.epsilon));
  return static_cast<float>(static_cast<double>(c.rate) * trust);
}

/// v = momentum*v + layer_rate * (g + decay*w); w -= v
constexpr void descend_with_layer_rate(float& w, float& v, float g, float layer_rate, const LarsUpdate& c) {
  v = c.momentum * v + layer_rate * (g * c.scale + c.decay * w);
  w -= v;
}

/// One update of Lamb for one layer: `follow` for all elements with the scaled gradient, then the norms, then
/// `descend_along`.
struct LambUpdate {
  Moments moments;   ///< how means are followed
  float correction;  ///< 1 / (1 - beta1^step)
  float rate;        ///< learning rate, before that of the layer
  float scale;       ///< of the gradient
  float decay;       ///< weight decay
  bool adapts;       ///< false for biases and normalization, whose rate is the plain one
};

/// Where the layer goes at w, after `follow`.
constexpr float direction(float w, float m, float v, const LambUpdate& c) {
  return c.correction * m / corrected_root(v, c.moments) + c.decay * w;
}

/// The layer's own rate, from the Euclidean norms of its parameters and of its direction.
constexpr float layer_rate(const LambUpdate& c, double parameter_norm, double direction_norm) {
  if (!c.adapts || !(parameter_norm > 0) || !(direction_norm > 0)) return c.rate;
  return static_cast<float>(static_cast<double>(c.rate) * (parameter_norm / direction_norm));
}

/// w -= layer_rate * direction
constexpr void descend_along(float& w, float m, float v, float layer_rate, const LambUpdate& c) {
  w -= layer_rate * direction(w, m, v, c);
}

// Which optimizer, with which constants, and the numbers of one of its updates.

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
