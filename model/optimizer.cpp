#include "model/optimizer.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <string_view>

#include "device/error.h"

namespace lockstep::model {
namespace {

void need(bool holds, std::string_view optimizer, std::string_view needed, float given) {
  if (!holds) throw Error(ErrorCategory::input, optimizer, needed, fmt::format("got {}", given));
}

void check(const Sgd& sgd) {
  need(sgd.momentum >= 0 && sgd.momentum < 1, "sgd", "needed momentum from 0 to below 1", sgd.momentum);
  need(sgd.weight_decay >= 0, "sgd", "needed weight decay of 0 or more", sgd.weight_decay);
  need(!sgd.nesterov || sgd.momentum > 0, "sgd", "needed momentum above 0 for Nesterov's form", sgd.momentum);
}

template <typename AdamLike>
void check_adam(const AdamLike& adam, std::string_view name) {
  need(adam.beta1 >= 0 && adam.beta1 < 1, name, "needed beta1 from 0 to below 1", adam.beta1);
  need(adam.beta2 >= 0 && adam.beta2 < 1, name, "needed beta2 from 0 to below 1", adam.beta2);
  // Above 0 also because the padding between parameters has gradient 0 and must stay 0, not 0 / 0.
  need(adam.epsilon > 0, name, "needed epsilon above 0", adam.epsilon);
  need(adam.weight_decay >= 0, name, "needed weight decay of 0 or more", adam.weight_decay);
}

void check(const Adam& adam) { check_adam(adam, "adam"); }
void check(const AdamW& adam) { check_adam(adam, "adamw"); }

std::string describe(const Sgd& sgd) {
  std::string text = "sgd(";
  if (sgd.momentum != 0) text += fmt::format("momentum={}, {}", sgd.momentum, sgd.nesterov ? "nesterov, " : "");
  return text + fmt::format("weight_decay={})", sgd.weight_decay);
}

template <typename AdamLike>
std::string describe_adam(const AdamLike& adam, std::string_view name) {
  return fmt::format("{}(beta1={}, beta2={}, epsilon={}, weight_decay={})", name, adam.beta1, adam.beta2, adam.epsilon,
                     adam.weight_decay);
}

std::string describe(const Adam& adam) { return describe_adam(adam, "adam"); }
std::string describe(const AdamW& adam) { return describe_adam(adam, "adamw"); }

std::vector<std::string> slots_of(const Sgd& sgd) {
  return sgd.momentum == 0 ? std::vector<std::string>{} : std::vector<std::string>{"momentum"};
}
std::vector<std::string> slots_of(const Adam&) { return {"m", "v"}; }
std::vector<std::string> slots_of(const AdamW&) { return {"m", "v"}; }

// A range of the flat arrays in which one formula with one decay applies. The arrays do not overlap; `second` and
// `first` are slots.
struct Arrays {
  std::size_t size;
  float* parameters;
  const float* gradients;
  float* first;   // momentum, m, or null
  float* second;  // v, or null
};

// A slot that the formula at hand needs.
float* kept(float* slot) {
  LOCKSTEP_CHECK(slot != nullptr);
  return slot;
}

void descend(const Arrays& arrays, float rate, float scale, float decay) {
  float* __restrict w = arrays.parameters;
  const float* __restrict g = arrays.gradients;
  for (std::size_t i = 0; i < arrays.size; ++i) w[i] -= rate * (g[i] * scale + decay * w[i]);
}

void descend_with_momentum(const Arrays& arrays, float rate, float scale, float decay, float momentum) {
  float* __restrict w = arrays.parameters;
  const float* __restrict g = arrays.gradients;
  float* __restrict v = kept(arrays.first);
  for (std::size_t i = 0; i < arrays.size; ++i) {
    v[i] = momentum * v[i] + (g[i] * scale + decay * w[i]);
    w[i] -= rate * v[i];
  }
}

void descend_with_nesterov(const Arrays& arrays, float rate, float scale, float decay, float momentum) {
  float* __restrict w = arrays.parameters;
  const float* __restrict g = arrays.gradients;
  float* __restrict v = kept(arrays.first);
  for (std::size_t i = 0; i < arrays.size; ++i) {
    const float gradient = g[i] * scale + decay * w[i];
    v[i] = momentum * v[i] + gradient;
    w[i] -= rate * (gradient + momentum * v[i]);
  }
}

// Adam's numbers that are the same for all elements of one update.
struct Moments {
  float beta1, one_minus_beta1;
  float beta2, one_minus_beta2;
  float epsilon;
  float corrected_rate;   // rate / (1 - beta1^step)
  float root_correction;  // 1 / sqrt(1 - beta2^step)
};

template <typename AdamLike>
Moments moments(const AdamLike& adam, float rate, std::int64_t step) {
  const double beta1 = adam.beta1;
  const double beta2 = adam.beta2;
  const auto power = static_cast<double>(step);
  return {.beta1 = adam.beta1,
          .one_minus_beta1 = static_cast<float>(1 - beta1),
          .beta2 = adam.beta2,
          .one_minus_beta2 = static_cast<float>(1 - beta2),
          .epsilon = adam.epsilon,
          .corrected_rate = static_cast<float>(rate / (1 - std::pow(beta1, power))),
          .root_correction = static_cast<float>(1 / std::sqrt(1 - std::pow(beta2, power)))};
}

// `l2` is added to the gradient, `shrink` scales the parameter: Adam uses one, AdamW the other.
void descend_with_moments(const Arrays& arrays, const Moments& moments, float scale, float l2, float shrink) {
  float* __restrict w = arrays.parameters;
  const float* __restrict g = arrays.gradients;
  float* __restrict m = kept(arrays.first);
  float* __restrict v = kept(arrays.second);
  const Moments c = moments;  // a copy, so that the compiler knows the loop does not change it
  for (std::size_t i = 0; i < arrays.size; ++i) {
    const float gradient = g[i] * scale + l2 * w[i];
    m[i] = c.beta1 * m[i] + c.one_minus_beta1 * gradient;
    v[i] = c.beta2 * v[i] + c.one_minus_beta2 * (gradient * gradient);
    w[i] = shrink * w[i] - c.corrected_rate * m[i] / (std::sqrt(v[i]) * c.root_correction + c.epsilon);
  }
}

struct Update {
  float rate;
  float scale;
  std::int64_t step;
  bool decays;
};

void update(const Sgd& sgd, const Arrays& arrays, const Update& context) {
  const float decay = context.decays ? sgd.weight_decay : 0;
  if (sgd.momentum == 0) return descend(arrays, context.rate, context.scale, decay);
  if (sgd.nesterov) return descend_with_nesterov(arrays, context.rate, context.scale, decay, sgd.momentum);
  descend_with_momentum(arrays, context.rate, context.scale, decay, sgd.momentum);
}

void update(const Adam& adam, const Arrays& arrays, const Update& context) {
  descend_with_moments(arrays, moments(adam, context.rate, context.step), context.scale,
                       context.decays ? adam.weight_decay : 0, 1);
}

void update(const AdamW& adam, const Arrays& arrays, const Update& context) {
  const float shrink =
      context.decays
          ? static_cast<float>(1 - static_cast<double>(context.rate) * static_cast<double>(adam.weight_decay))
          : 1;
  descend_with_moments(arrays, moments(adam, context.rate, context.step), context.scale, 0, shrink);
}

}  // namespace

std::string to_string(const OptimizerOptions& options) {
  return std::visit([](const auto& chosen) { return describe(chosen); }, options);
}

Optimizer::Optimizer(OptimizerOptions options, const ParameterTable& table) : options_(options) {
  std::visit([](const auto& chosen) { check(chosen); }, options_);
  // The padding behind a parameter belongs to its range, so neighbours touch and join.
  for (const ParameterInfo& entry : table.entries()) {
    if (ranges_.empty() || ranges_.back().decay != entry.decay) {
      if (!ranges_.empty()) ranges_.back().end = entry.offset;
      ranges_.push_back({.begin = entry.offset, .end = 0, .decay = entry.decay});
    }
    ranges_.back().end = table.flat_size();
  }
  slots_.assign(slot_names().size(), std::vector<float>(table.flat_size()));
}

void Optimizer::apply(std::span<float> parameters, std::span<const float> gradients, float learning_rate,
                      std::int64_t step, float gradient_scale) {
  const std::size_t size = ranges_.empty() ? 0 : ranges_.back().end;
  LOCKSTEP_CHECK_OP(parameters.size(), ==, size);
  LOCKSTEP_CHECK_OP(gradients.size(), ==, size);
  LOCKSTEP_CHECK_OP(step, >, 0);
  for (const DecayRange& range : ranges_) {
    const auto slot_at = [&](std::size_t index) {
      return index < slots_.size() ? slots_[index].data() + range.begin : nullptr;
    };
    const Arrays arrays{range.end - range.begin, parameters.data() + range.begin, gradients.data() + range.begin,
                        slot_at(0), slot_at(1)};
    const Update context{learning_rate, gradient_scale, step, range.decay};
    std::visit([&](const auto& chosen) { update(chosen, arrays, context); }, options_);
  }
}

std::vector<std::string> Optimizer::slot_names() const {
  return std::visit([](const auto& chosen) { return slots_of(chosen); }, options_);
}

std::span<float> Optimizer::slot(std::string_view name) {
  const std::vector<std::string> names = slot_names();
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == name) return slots_[i];
  throw Error(ErrorCategory::checkpoint, to_string(options_),
              fmt::format("needed one of the slots {}", fmt::join(names, ", ")), fmt::format("got \"{}\"", name));
}

double global_norm(std::span<const float> gradients) {
  // One sum per lane, so that the compiler can use vectors and the order is still fixed by the source.
  constexpr std::size_t kLanes = 32;
  std::array<double, kLanes> lanes{};
  const std::size_t whole = gradients.size() / kLanes * kLanes;
  for (std::size_t i = 0; i < whole; i += kLanes)
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const auto value = static_cast<double>(gradients[i + lane]);
      lanes[lane] += value * value;
    }
  for (std::size_t i = whole; i < gradients.size(); ++i)
    lanes[i - whole] += static_cast<double>(gradients[i]) * static_cast<double>(gradients[i]);
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return std::sqrt(sum);
}

float clip_scale(double norm, double limit) { return limit > 0 && norm > limit ? static_cast<float>(limit / norm) : 1; }

}  // namespace lockstep::model
