// Elements of one type in the memory of a plan.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

#include "lockstep/base/float16.h"
#include "lockstep/model/precision.h"

namespace lockstep::model {

/// A view of `size` elements of one type, on the plan's device; the memory is somebody else's. Who hands one out says
/// whether it may be written.
class TensorView {
 public:
  TensorView() = default;
  /// `size` elements of `type`, in memory of somebody else.
  TensorView(void* data, std::size_t size, Precision type) : data_(data), size_(size), type_(type) {}
  /// Values of float32.
  TensorView(std::span<float> values)  // NOLINT(google-explicit-constructor): float32 is the common case
      : TensorView(values.data(), values.size(), Precision::float32) {}
  /// To be read only.
  static TensorView reading(std::span<const float> values) {
    return {const_cast<float*>(values.data()), values.size(), Precision::float32};
  }

  void* data() const { return data_; }        ///< the first element; null where it is empty
  std::size_t size() const { return size_; }  ///< in elements
  std::size_t size_bytes() const { return size_ * element_bytes(type_); }  ///< bytes of all elements
  bool empty() const { return size_ == 0; }                                ///< whether there are none
  Precision type() const { return type_; }                                 ///< of each element

  /// The elements as what they are: float, device::BFloat16 or device::Float16.
  template <typename T>
  std::span<T> as() const {
    check_type(kTypeOf<T>);
    return {static_cast<T*>(data_), size_};
  }

 private:
  template <typename T>
  static constexpr Precision kTypeOf = std::is_same_v<T, float>      ? Precision::float32
                                       : std::is_same_v<T, BFloat16> ? Precision::bfloat16
                                                                     : Precision::float16;

  void check_type(Precision wanted) const;

  void* data_ = nullptr;
  std::size_t size_ = 0;
  Precision type_ = Precision::float32;
};

}  // namespace lockstep::model
