// Local arithmetic on gradients, on the host or a GPU.
#pragma once

#include <span>

namespace lockstep::interop {

/// Elementwise operations on float arrays of one device. The arrays of a call have the same size
/// and do not overlap.
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
  /// The sum of squares, computed in double.
  virtual double squared_norm(std::span<const float> values) = 0;
  /// Copies values from the host to the device.
  virtual void write(std::span<float> to, std::span<const float> from_host) = 0;
  /// Copies values from the device to the host, after all pending work on them.
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
