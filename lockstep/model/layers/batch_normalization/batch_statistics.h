// The arithmetic of batch normalization per channel, shared by all devices.
#pragma once

#include <cstddef>

namespace lockstep::inline v0::model {

/// Count, mean and sum of squared deviations from the mean. Unlike a sum of squares, this loses no
/// precision when the mean is large compared with the deviation.
struct BatchMoments {
  float count = 0;
  float mean = 0;
  float squares = 0;
};

/// Merges two sets of moments (Chan, Golub, LeVeque, 1979). Either may be empty.
constexpr BatchMoments combine(const BatchMoments& a, const BatchMoments& b) {
  if (b.count == 0) return a;
  if (a.count == 0) return b;
  const float count = a.count + b.count;
  const float distance = b.mean - a.mean;
  const float share = b.count / count;
  return {count, a.mean + distance * share,
          a.squares + b.squares + distance * distance * a.count * share};
}

/// The variance used for normalization.
constexpr float biased_variance(const BatchMoments& m) {
  return m.count > 0 ? m.squares / m.count : 0.0F;
}
/// The variance stored in the moving statistics, with Bessel's correction; 0 for a single value.
constexpr float unbiased_variance(const BatchMoments& m) {
  return m.count > 1 ? m.squares / (m.count - 1) : biased_variance(m);
}

/// A moving statistic after a batch with the statistic `seen`.
constexpr float moved(float statistic, float seen, float momentum) {
  return statistic + (1 - momentum) * (seen - statistic);
}

/// A value as a normalized deviation from the mean; `inverse` is 1 / sqrt(biased variance +
/// epsilon).
constexpr float normalized(float value, float mean, float inverse) {
  return (value - mean) * inverse;
}
constexpr float scaled(float normal, float gamma, float beta) { return gamma * normal + beta; }

/// The gradient of an input value, from the gradient of its output and two sums over all `count`
/// values of the channel: the sum of gradients, and the sum of gradients times normalized values
/// (Ioffe, Szegedy, 2015).
constexpr float input_gradient(float gradient, float normal, float gradient_sum, float product_sum,
                               float count, float factor) {
  return factor * (gradient - (gradient_sum + normal * product_sum) / count);
}

/// Layout of an array in which members exchange their moments by summation. Each member has a row
/// of `width` numbers: means, then squares, then one count for all channels. A member leaves the
/// rows of the other members at zero.
struct MomentsLayout {
  std::size_t channels = 0;
  std::size_t members = 1;

  constexpr std::size_t width() const { return 2 * channels + 1; }
  constexpr std::size_t size() const { return members * width(); }
  constexpr std::size_t mean(std::size_t member, std::size_t channel) const {
    return member * width() + channel;
  }
  constexpr std::size_t squares(std::size_t member, std::size_t channel) const {
    return member * width() + channels + channel;
  }
  constexpr std::size_t count(std::size_t member) const { return member * width() + 2 * channels; }

  /// The moments of one channel over all members, combined in member order.
  constexpr BatchMoments together(const float* array, std::size_t channel) const {
    BatchMoments all;
    for (std::size_t i = 0; i < members; ++i)
      all = combine(all, {array[count(i)], array[mean(i, channel)], array[squares(i, channel)]});
    return all;
  }
};

}  // namespace lockstep::inline v0::model
