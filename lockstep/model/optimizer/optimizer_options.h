// The optimizers. Each has options, and an update: constants that are computed once per step, on
// the host (update_of()), and formulas for one element, float arithmetic that CPU loops and GPU
// kernels share. Names, slots, loops and kernels follow from the two lists of types,
// OptimizerOptions and OptimizerUpdate. A CustomOptimizer implements its own update instead.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/model/optimizer/custom_optimizer.h"

namespace lockstep::inline v0::model {

/// The arguments of one update.
struct UpdateContext {
  float learning_rate = 0;   ///< learning rate of this update
  std::int64_t step = 1;     ///< counted from 1; used for bias correction
  float gradient_scale = 1;  ///< factor on the stored gradients
  bool decays = true;  ///< whether the parameters have decay: neither biases nor normalization
  std::optional<float> weight_decay = {};  ///< replaces the decay of the options
};

// In every update, `kSlots` names the arrays that are stored in addition to the parameters, at most
// two; descend(w, one float& per slot, g) updates a parameter w and its slots by the stored
// gradient g, which is multiplied by `scale`. The `learning_rate` of the options replaces
// Schedule::peak in Trainer; updates use the rate of their UpdateContext.

/// One update of Sgd without momentum.
struct SgdUpdate {
  static constexpr std::array<std::string_view, 0> kSlots = {};  ///< none
  float rate;                                                    ///< learning rate
  float scale;                                                   ///< factor on the gradient
  float decay;                                                   ///< weight decay

  /// w -= rate * (g + decay*w)
  constexpr void descend(float& w, float g) const { w -= rate * (g * scale + decay * w); }
};

/// One update of Sgd with momentum.
struct MomentumUpdate {
  static constexpr std::array<std::string_view, 1> kSlots = {"momentum"};  ///< the velocity
  float rate;                                                              ///< learning rate
  float scale;     ///< factor on the gradient
  float decay;     ///< weight decay
  float momentum;  ///< fraction of the velocity that is kept

  /// v = momentum*v + g; w -= rate*v
  constexpr void descend(float& w, float& v, float g) const {
    v = momentum * v + (g * scale + decay * w);
    w -= rate * v;
  }
};

/// One update of Sgd with Nesterov momentum.
struct NesterovUpdate : MomentumUpdate {
  /// v = momentum*v + g; w -= rate * (g + momentum*v)
  constexpr void descend(float& w, float& v, float g) const {
    const float gradient = g * scale + decay * w;
    v = momentum * v + gradient;
    w -= rate * (gradient + momentum * v);
  }
};

/// v = momentum*v + g; w -= rate*v, or with Nesterov w -= rate*(g + momentum*v) (Sutskever et al.,
/// ICML 2013). L2 decay is added to g.
struct Sgd {
  static constexpr std::string_view kName = "sgd";  ///< in `--optimizer`
  float momentum = 0;  ///< fraction of the velocity that is kept in each step; 0 disables momentum
  bool nesterov = false;   ///< whether to use Nesterov momentum
  float weight_decay = 0;  ///< L2 decay, for arrays with decay; added to the gradient
  std::optional<float> learning_rate = {};  ///< peak of the schedule; none: Schedule::peak
};

/// Constants of the running means of the gradient and of its square, with their bias correction.
struct Moments {
  float beta1;            ///< decay rate of the mean gradient
  float one_minus_beta1;  ///< 1 - beta1
  float beta2;            ///< decay rate of the mean square
  float one_minus_beta2;  ///< 1 - beta2
  float epsilon;          ///< added to the denominator
  float root_correction;  ///< 1 / sqrt(1 - beta2^step)

  /// Updates m and v with `gradient`.
  constexpr void follow(float& m, float& v, float gradient) const {
    m = beta1 * m + one_minus_beta1 * gradient;
    v = beta2 * v + one_minus_beta2 * (gradient * gradient);
  }
  /// The denominator of a step.
  constexpr float corrected_root(float v) const { return std::sqrt(v) * root_correction + epsilon; }
};

/// One update of Adam, whose decay is added to the gradient, or of AdamW, whose decay shrinks the
/// parameter.
struct AdamUpdate {
  static constexpr std::array<std::string_view, 2> kSlots = {"m", "v"};  ///< the running means
  Moments moments;       ///< constants of the running means
  float corrected_rate;  ///< rate / (1 - beta1^step)
  float scale;           ///< factor on the gradient
  float l2;              ///< decay of Adam, 0 for AdamW
  float shrink;          ///< 1 - rate*decay of AdamW, 1 for Adam

  /// w = shrink*w - corrected_rate * m / corrected_root(v), after m and v are updated with the
  /// gradient.
  constexpr void descend(float& w, float& m, float& v, float g) const {
    const float gradient = g * scale + l2 * w;
    moments.follow(m, v, gradient);
    w = shrink * w - corrected_rate * m / moments.corrected_root(v);
  }
};

/// Kingma and Ba, ICLR 2015, with bias correction; epsilon outside the root. L2 decay is added to
/// g.
struct Adam {
  static constexpr std::string_view kName = "adam";  ///< in `--optimizer`
  float beta1 = 0.9f;                                ///< decay rate of the mean gradient
  float beta2 = 0.999f;                              ///< decay rate of the mean square
  float epsilon = 1e-7f;                             ///< added to the root of the mean square
  float weight_decay = 0;  ///< L2 decay, for arrays with decay; added to the gradient
  std::optional<float> learning_rate = {};  ///< peak of the schedule; none: Schedule::peak
};

/// Adam with decoupled decay, w -= rate*decay*w (Loshchilov and Hutter, ICLR 2019).
struct AdamW {
  static constexpr std::string_view kName = "adamw";  ///< in `--optimizer`
  float beta1 = 0.9f;                                 ///< decay rate of the mean gradient
  float beta2 = 0.999f;                               ///< decay rate of the mean square
  float epsilon = 1e-7f;                              ///< added to the root of the mean square
  /// Decoupled decay, for arrays with decay; shrinks the parameters.
  float weight_decay = 0.01f;
  std::optional<float> learning_rate = {};  ///< peak of the schedule; none: Schedule::peak
};

/// One update of RmsProp without momentum.
struct RmsPropUpdate {
  static constexpr std::array<std::string_view, 1> kSlots = {"mean_square"};  ///< E[g^2]
  float rate;                                                                 ///< learning rate
  float scale;          ///< factor on the gradient
  float decay;          ///< weight decay
  float rho;            ///< decay rate of the mean square
  float one_minus_rho;  ///< 1 - rho
  float epsilon;        ///< added to the root of the mean square

  /// v = rho*v + (1 - rho)*g^2; the step of rate 1 is g / (sqrt(v) + epsilon)
  constexpr float follow(float w, float& v, float g) const {
    const float gradient = g * scale + decay * w;
    v = rho * v + one_minus_rho * (gradient * gradient);
    return gradient / (std::sqrt(v) + epsilon);
  }
  /// w -= rate * step
  constexpr void descend(float& w, float& v, float g) const { w -= rate * follow(w, v, g); }
};

/// One update of RmsProp with momentum.
struct RmsPropMomentumUpdate : RmsPropUpdate {
  /// The mean square, and the velocity.
  static constexpr std::array<std::string_view, 2> kSlots = {"mean_square", "momentum"};
  float momentum;  ///< fraction of the velocity that is kept

  /// u = momentum*u + step; w -= rate*u
  constexpr void descend(float& w, float& v, float& u, float g) const {
    u = momentum * u + follow(w, v, g);
    w -= rate * u;
  }
};

/// Tieleman and Hinton, 2012: divides the gradient by the root of its running mean square. Formula
/// of PyTorch (epsilon outside the root, the rate not part of the velocity), defaults of Keras. L2
/// decay is added to the gradient.
struct RmsProp {
  static constexpr std::string_view kName = "rmsprop";  ///< in `--optimizer`
  float rho = 0.9f;                                     ///< decay rate of the mean square
  float momentum = 0;      ///< fraction of the velocity that is kept; 0 disables momentum
  float epsilon = 1e-7f;   ///< added to the root of the mean square
  float weight_decay = 0;  ///< L2 decay, for arrays with decay; added to the gradient
  std::optional<float> learning_rate = {};  ///< peak of the schedule; none: Schedule::peak
};

/// One update of Adagrad.
struct AdagradUpdate {
  static constexpr std::array<std::string_view, 1> kSlots = {"sum_of_squares"};  ///< sum of g^2
  float rate;                                                                    ///< learning rate
  float scale;                ///< factor on the gradient
  float decay;                ///< weight decay
  float initial_accumulator;  ///< added to the sum, which therefore begins with 0
  float epsilon;              ///< added to the root

  /// s += g^2; w -= rate * g / (sqrt(initial_accumulator + s) + epsilon)
  constexpr void descend(float& w, float& s, float g) const {
    const float gradient = g * scale + decay * w;
    s += gradient * gradient;
    w -= rate * gradient / (std::sqrt(initial_accumulator + s) + epsilon);
  }
};

/// Duchi, Hazan and Singer, JMLR 2011: divides the gradient by the root of the sum of all its
/// squares. Formula of PyTorch (epsilon outside the root), defaults of Keras; PyTorch's are
/// initial_accumulator 0 and epsilon 1e-10. L2 decay is added to the gradient.
struct Adagrad {
  static constexpr std::string_view kName = "adagrad";  ///< in `--optimizer`
  float initial_accumulator = 0.1f;  ///< added to the sum of squares; bounds the first steps
  float epsilon = 1e-7f;             ///< added to the root of the sum
  float weight_decay = 0;            ///< L2 decay, for arrays with decay; added to the gradient
  std::optional<float> learning_rate = {};  ///< peak of the schedule; none: Schedule::peak
};

/// An update whose rate depends on norms of the layer. If it `adapts`, its `rate` is replaced by
/// layer_rate(norm of w, norm of along(w, slots..., g)), after follow(w, slots..., g) of all
/// elements, and before descend().
template <typename Update>
concept LayerWise = requires(const Update& update) {
  update.layer_rate(1.0, 1.0);
};

/// One update of Lars for one layer.
struct LarsUpdate {
  /// The velocity, not called "momentum" because it includes the learning rate.
  static constexpr std::array<std::string_view, 1> kSlots = {"velocity"};
  float rate;               ///< learning rate, without and then with the layer's factor
  float scale;              ///< factor on the gradient
  float decay;              ///< weight decay
  float momentum;           ///< fraction of the velocity that is kept
  float trust_coefficient;  ///< step length as a fraction of the layer's norm
  float epsilon;            ///< added to the norm of the gradient
  bool adapts;              ///< false for biases and normalization, which use `rate` unchanged

  /// Nothing: the norms do not depend on the velocity.
  constexpr void follow(float /*w*/, float& /*v*/, float /*g*/) const {}
  /// The gradient, without decay.
  constexpr float along(float /*w*/, float /*v*/, float g) const { return g * scale; }
  /// The rate of a layer, from the Euclidean norms of its parameters and of its gradient.
  constexpr float layer_rate(double parameter_norm, double gradient_norm) const {
    if (!(parameter_norm > 0) || !(gradient_norm > 0)) return rate;
    const double trust = static_cast<double>(trust_coefficient) * parameter_norm /
                         (gradient_norm + static_cast<double>(decay) * parameter_norm +
                          static_cast<double>(epsilon));
    return static_cast<float>(static_cast<double>(rate) * trust);
  }
  /// v = momentum*v + rate * (g + decay*w); w -= v
  constexpr void descend(float& w, float& v, float g) const {
    v = momentum * v + rate * (g * scale + decay * w);
    w -= v;
  }
};

/// Layer-wise adaptive rates for large batches (You, Gitman and Ginsburg, arXiv 1708.03888): each
/// layer's rate is multiplied by trust = trust_coefficient * |w| / (|g| + decay*|w| + epsilon),
/// then v = momentum*v + rate*trust*(g + decay*w); w -= v. The rate is part of v, so a change of
/// the rate takes effect slowly, as in the paper. Biases and normalization have no decay and
/// trust 1. Trust is also 1 if |w| or |g| is 0.
struct Lars {
  static constexpr std::string_view kName = "lars";  ///< in `--optimizer`
  float momentum = 0.9f;                    ///< fraction of the velocity that is kept in each step
  float weight_decay = 5e-4f;               ///< for arrays with decay; added to the gradient
  float trust_coefficient = 1e-3f;          ///< step length as a fraction of the layer's norm
  float epsilon = 1e-9f;                    ///< added to the norm of the gradient
  std::optional<float> learning_rate = {};  ///< peak of the schedule; none: Schedule::peak
};

/// One update of Lamb for one layer.
struct LambUpdate {
  static constexpr std::array<std::string_view, 2> kSlots = {"m", "v"};  ///< the running means
  Moments moments;   ///< constants of the running means
  float correction;  ///< 1 / (1 - beta1^step)
  float rate;        ///< learning rate, without and then with the layer's factor
  float scale;       ///< factor on the gradient
  float decay;       ///< weight decay
  bool adapts;       ///< false for biases and normalization, which use `rate` unchanged

  /// Updates m and v with the gradient.
  constexpr void follow(float /*w*/, float& m, float& v, float g) const {
    moments.follow(m, v, g * scale);
  }
  /// The update direction of w.
  constexpr float along(float w, float m, float v, float /*g*/) const {
    return correction * m / moments.corrected_root(v) + decay * w;
  }
  /// The rate of a layer, from the Euclidean norms of its parameters and of its direction.
  constexpr float layer_rate(double parameter_norm, double direction_norm) const {
    if (!(parameter_norm > 0) || !(direction_norm > 0)) return rate;
    return static_cast<float>(static_cast<double>(rate) * (parameter_norm / direction_norm));
  }
  /// w -= rate * direction
  constexpr void descend(float& w, float& m, float& v, float g) const {
    w -= rate * along(w, m, v, g);
  }
};

/// Layer-wise adaptive rates for Adam (You et al., ICLR 2020, Algorithm 2, phi the identity): u =
/// Adam's step of rate 1 with bias correction + decay*w; w -= rate * |w|/|u| * u. Biases and
/// normalization have no decay and ratio 1. The ratio is also 1 if |w| or |u| is 0.
struct Lamb {
  static constexpr std::string_view kName = "lamb";  ///< in `--optimizer`
  float beta1 = 0.9f;                                ///< decay rate of the mean gradient
  float beta2 = 0.999f;                              ///< decay rate of the mean square
  float epsilon = 1e-6f;                             ///< added to the root of the mean square
  float weight_decay = 0.01f;               ///< for arrays with decay; added to the direction
  std::optional<float> learning_rate = {};  ///< peak of the schedule; none: Schedule::peak
};

/// An optimizer with its constants. The built-in ones are in the order of help texts and errors.
using OptimizerOptions =
    std::variant<Sgd, Adam, AdamW, Lars, Lamb, RmsProp, Adagrad, CustomOptimizerPointer>;
/// The constants of one update. The type depends on the options alone.
using OptimizerUpdate =
    std::variant<SgdUpdate, MomentumUpdate, NesterovUpdate, AdamUpdate, LarsUpdate, LambUpdate,
                 RmsPropUpdate, RmsPropMomentumUpdate, AdagradUpdate>;

/// Calls function(w, one argument per slot of Update, g) for element `i` of the arrays.
template <typename Update, typename Function>
constexpr auto at_element(std::size_t i, float* w, float* first, float* second, const float* g,
                          const Function& function) {
  static_assert(Update::kSlots.size() <= 2);
  if constexpr (Update::kSlots.size() == 0)
    return function(w[i], g[i]);
  else if constexpr (Update::kSlots.size() == 1)
    return function(w[i], first[i], g[i]);
  else
    return function(w[i], first[i], second[i], g[i]);
}

/// The constants of one update, the same for every backend. Not for a CustomOptimizer.
OptimizerUpdate update_of(const OptimizerOptions& options, const UpdateContext& context);

/// All optimizers of the library with their defaults, in the order of OptimizerOptions.
std::vector<OptimizerOptions> all_optimizers();
/// The name used by `--optimizer`, or CustomOptimizer::name().
std::string name_of(const OptimizerOptions& options);
/// The name with the hyperparameters: "adam:beta1=0.9,…".
std::string to_string(const OptimizerOptions& options);

/// The peak of the schedule, if the options have one.
std::optional<float> learning_rate_of(const OptimizerOptions& options);
/// The hyperparameter that is called `name`, such as "weight_decay"; null if the optimizer has
/// none, and for a CustomOptimizer.
float* find_hyperparameter(OptimizerOptions& options, std::string_view name);
/// The names and values of all constants but the learning rate.
std::vector<std::pair<std::string, std::variant<bool, double>>> hyperparameters_of(
    OptimizerOptions options);
/// Throws Error (input) for a constant out of range, and for a CustomOptimizer that is null or has
/// names that checkpoints cannot store.
void check_options(const OptimizerOptions& options);

/// Throws Error (input) for an optimizer that runs on the CPU only.
void check_runs_on_gpu(const OptimizerOptions& options);

/// The name of the moving average of the parameters among the slots of an Updater.
inline constexpr std::string_view kAverageSlot = "average";

/// Names of the arrays stored in addition to the parameters, such as "m" and "v": kSlots of the
/// update.
std::vector<std::string> slot_names(const OptimizerOptions& options);

/// Whether an update needs the norms of each parameter tensor.
bool is_layer_wise(const OptimizerOptions& options);

}  // namespace lockstep::inline v0::model
