// A user's network, optimizer and data, independent of Lockstep.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "lockstep/interop/parameter_exchange.h"

namespace lockstep::inline v0::interop::own {

constexpr std::size_t kInputs = 5;
constexpr std::size_t kHidden = 7;

struct Array {
  std::string name;
  std::vector<float> values;
  std::vector<float> gradient = std::vector<float>(values.size());
};

struct Samples {
  std::vector<float> inputs;  // [N, kInputs]
  std::vector<float> targets;
  std::size_t size() const { return targets.size(); }
};

inline Samples make_samples(std::size_t count) {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> uniform(-1, 1);
  Samples samples;
  for (std::size_t i = 0; i < count; ++i) {
    float target = 0;
    for (std::size_t f = 0; f < kInputs; ++f) {
      samples.inputs.push_back(uniform(random));
      target += samples.inputs.back() * static_cast<float>(f);
    }
    samples.targets.push_back(std::sin(target));
  }
  return samples;
}

/// y = v tanh(W x + b) with mean squared error. Gradients are accumulated.
class Network {
 public:
  explicit Network(unsigned seed = 1)
      : arrays{{"hidden/weights", random_values(kInputs * kHidden, seed)},
               {"hidden/bias", random_values(kHidden, seed + 1)},
               {"output/weights", random_values(kHidden, seed + 2)}} {}

  void zero_grad() {
    for (Array& array : arrays) std::ranges::fill(array.gradient, 0.0F);
  }

  /// Computes gradients for samples [begin, end). Returns the loss.
  double backward(const Samples& samples, std::size_t begin, std::size_t end) {
    Array& weights = arrays[0];
    Array& bias = arrays[1];
    Array& output = arrays[2];
    double loss = 0;
    const auto count = static_cast<float>(end - begin);
    for (std::size_t i = begin; i < end; ++i) {
      const float* x = samples.inputs.data() + i * kInputs;
      std::vector<float> hidden(kHidden);
      float y = 0;
      for (std::size_t h = 0; h < kHidden; ++h) {
        float sum = bias.values[h];
        for (std::size_t f = 0; f < kInputs; ++f) sum += weights.values[h * kInputs + f] * x[f];
        hidden[h] = std::tanh(sum);
        y += output.values[h] * hidden[h];
      }
      const float error = y - samples.targets[i];
      loss += static_cast<double>(error * error / count);
      for (std::size_t h = 0; h < kHidden; ++h) {
        const float d = 2 * error / count;
        output.gradient[h] += d * hidden[h];
        const float inner = d * output.values[h] * (1 - hidden[h] * hidden[h]);
        bias.gradient[h] += inner;
        for (std::size_t f = 0; f < kInputs; ++f) weights.gradient[h * kInputs + f] += inner * x[f];
      }
    }
    return loss;
  }

  std::vector<float> all_values() const {
    std::vector<float> all;
    for (const Array& array : arrays)
      all.insert(all.end(), array.values.begin(), array.values.end());
    return all;
  }

  std::vector<Array> arrays;

 private:
  static std::vector<float> random_values(std::size_t count, unsigned seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> uniform(-0.5F, 0.5F);
    std::vector<float> values(count);
    for (float& value : values) value = uniform(random);
    return values;
  }
};

/// Stochastic gradient descent with momentum.
class Momentum {
 public:
  explicit Momentum(Network& network, float rate = 0.05F) : network_(network), rate_(rate) {
    for (const Array& array : network.arrays)
      velocities.push_back({array.name + "/velocity", std::vector<float>(array.values.size())});
  }

  std::vector<Parameter> parameters() { return parameters_of(network_.arrays); }
  std::vector<Parameter> state() { return parameters_of(velocities); }
  void zero_grad() { network_.zero_grad(); }
  void step() {
    ++steps;
    for (std::size_t a = 0; a < velocities.size(); ++a)
      for (std::size_t i = 0; i < velocities[a].values.size(); ++i) {
        velocities[a].values[i] = 0.9F * velocities[a].values[i] + network_.arrays[a].gradient[i];
        network_.arrays[a].values[i] -= rate_ * velocities[a].values[i];
      }
  }

  std::vector<Array> velocities;
  int steps = 0;

 private:
  static std::vector<Parameter> parameters_of(std::vector<Array>& arrays) {
    std::vector<Parameter> parameters;
    for (Array& array : arrays) parameters.push_back({array.name, array.values, array.gradient});
    return parameters;
  }

  Network& network_;
  float rate_;
};

}  // namespace lockstep::inline v0::interop::own
