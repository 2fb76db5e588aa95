// What is computed on gradients beside sums over ranks, wherever they lie.
#pragma once

#include <span>

namespace lockstep::interop {

/// Loops over float arrays on one device. Arrays of one call are of the same size and do not overlap.
class GradientMath {
 public:
  virtual ~GradientMath() = default;

  /// to = from * factor
  virtual void assign(std::span<float> to, std::span<const float> from, float factor) = 0;
  /// to = (to + from) * factor
  virtual void add(std::span<float> to, std::span<const float> from, float factor) = 0;
  /// values = values * factor
  virtual void scale(std::span<float> values, float factor) = 0;
  /// values = 0
  virtual void clear(std::span<float> values) = 0;
  /// The sum of squares, in double.
  virtual double squared_norm(std::span<const float> values) = 0;
  /// Brings values of the host to the device.
  virtual void write(std::span<float> to, std::span<const float> from_host) = 0;
  /// Brings values of the device to the host, after all work on them.
  virtual void read(std::span<float> to_host, std::span<const float> from) = 0;
};

/// For gradients in host memory.
class HostGradientMath final : public GradientMath {
 public:
  void assign(std::span<float> to, std::span<const float> from, float factor) override;
  void add(std::span<float> to, std::span<const float> from, float factor) override;
  void scale(std::span<float> values, float factor) override;
  void clear(std::span<float> values) override;
  double squared_norm(std::span<const float> values) override;
  void write(std::span<float> to, std::span<const float> from_host) override;
  void read(std::span<float> to_host, std::span<const float> from) override;
};

}  // namespace lockstep::interop
