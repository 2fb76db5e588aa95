// Local arithmetic on gradients, on the host or a GPU.
#pragma once

#include <memory>
#include <span>

namespace lockstep::inline v0::interop {

/// Elementwise operations on arrays of T, float or double, of one device. The arrays of a call have
/// the same size and do not overlap. Factors are rounded to T.
template <typename T>
class GradientMath {
 public:
  virtual ~GradientMath() = default;

  /// to = from * factor
  virtual void assign(std::span<T> to, std::span<const T> from, double factor) = 0;
  /// to = (to + from) * factor
  virtual void add(std::span<T> to, std::span<const T> from, double factor) = 0;
  /// values = values * factor
  virtual void scale(std::span<T> values, double factor) = 0;
  /// values = 0
  virtual void clear(std::span<T> values) = 0;
  /// The sum of squares, computed in double.
  virtual double squared_norm(std::span<const T> values) = 0;
  /// Copies values from the host to the device.
  virtual void write(std::span<T> to, std::span<const T> from_host) = 0;
  /// Copies values from the device to the host, after all pending work on them.
  virtual void read(std::span<T> to_host, std::span<const T> from) = 0;
};

/// GradientMath in host memory.
template <typename T>
class HostGradientMath final : public GradientMath<T> {
 public:
  void assign(std::span<T> to, std::span<const T> from, double factor) override;
  void add(std::span<T> to, std::span<const T> from, double factor) override;
  void scale(std::span<T> values, double factor) override;
  void clear(std::span<T> values) override;
  double squared_norm(std::span<const T> values) override;
  void write(std::span<T> to, std::span<const T> from_host) override;
  void read(std::span<T> to_host, std::span<const T> from) override;
};

extern template class HostGradientMath<float>;
extern template class HostGradientMath<double>;

/// Arithmetic for both element types, on the same device; both may be null.
struct DeviceMath {
  std::unique_ptr<GradientMath<float>> float32 = nullptr;   ///< for float32
  std::unique_ptr<GradientMath<double>> float64 = nullptr;  ///< for float64
};

}  // namespace lockstep::inline v0::interop
