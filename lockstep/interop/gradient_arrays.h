// The gradients of a GradientReducer in memory, float32 and float64, and arithmetic on them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/allreduce/communicator.h"
#include "lockstep/device/buffer.h"
#include "lockstep/interop/gradient_layout.h"
#include "lockstep/interop/gradient_math.h"

namespace lockstep::inline v0::interop {

/// Hash of values on the host, as computed by GradientArrays::accumulate().
std::uint64_t hash_of(std::span<const std::byte> values);

/// One allocation: the float32 gradients, `scalars` values that are reduced with them, and, from
/// the next cache line on, the float64 gradients.
class GradientArrays {
 public:
  /// Memory that `group` reduces without a copy. Both pointers of `math` are set.
  GradientArrays(const allreduce::Communicator& group, std::vector<ParameterLayout> parameters,
                 GradientLayout layout, std::size_t scalars, DeviceMath math);

  /// Positions in the float32 and the float64 array.
  const GradientLayout& layout() const { return layout_; }
  /// Owns all gradients.
  std::shared_ptr<const void> memory() const { return memory_; }
  /// The float32 gradients and, after them, the scalars.
  std::span<float> with_scalars() const;
  std::span<double> wide() const;  ///< all float64 gradients

  /// The gradient of a parameter of type T, float or double.
  template <typename T>
  std::span<T> gradient(std::size_t parameter) const;
  /// gradient = values * factor, or (gradient + values) * factor if `adds`. Stores the hash of
  /// `values`, which must be on the host, in `*hash` unless it is null.
  template <typename T>
  void accumulate(std::size_t parameter, std::span<const T> values, bool adds, double factor,
                  std::uint64_t* hash = nullptr) const;

  // These accept float32 and float64 parameters.
  void scale(std::size_t parameter, double factor) const;  ///< scales one gradient
  void clear(std::size_t parameter) const;                 ///< sets one gradient to 0
  double squared_norm(std::size_t parameter) const;        ///< squared norm of one gradient

  void scale_all(double factor) const;                   ///< scales all gradients
  double squared_norm() const;                           ///< squared norm of all gradients
  void write_scalars(std::span<const float> all) const;  ///< copies from the host
  void read_scalars(std::span<float> all) const;         ///< copies to the host

 private:
  std::span<float> narrow() const;
  template <typename T>
  GradientMath<T>& math() const;

  std::vector<ParameterLayout> parameters_;
  GradientLayout layout_;
  std::size_t scalars_;
  DeviceMath math_;
  std::size_t wide_begin_;  // in bytes
  std::shared_ptr<const device::Buffer> memory_;
};

}  // namespace lockstep::inline v0::interop
