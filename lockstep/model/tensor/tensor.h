// The type of activations and of the weights that matrix products read. Parameters, gradients and
// statistics are always float32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "lockstep/base/enum_names.h"
#include "lockstep/base/float16.h"

namespace lockstep::inline v0::model {

/// Extents of an array without the batch, outermost first: [H, W, C] for an image, [F] for a
/// vector.
using Shape = std::vector<std::int64_t>;

/// Product of the extents; 1 for an empty shape (a scalar).
std::int64_t element_count(const Shape& shape);

/// "[28, 28, 1]"
std::string to_string(const Shape& shape);

// The type of activations and of the weights that matrix products read. Parameters, gradients and
// statistics are always float32.

/// The supported types of activations.
enum class Precision { float32, bfloat16, float16 };

std::string to_string(Precision precision);  ///< "float32", "bfloat16" or "float16"

/// Bytes of one element.
constexpr std::size_t element_bytes(Precision precision) {
  return precision == Precision::float32 ? 4 : 2;
}

// A typed view of device memory.

/// A non-owning view of `size` elements of one type, on the plan's device. The function that
/// returns it documents whether it may be written.
class TensorView {
 public:
  TensorView() = default;
  /// `size` elements of `type`. Does not own the memory.
  TensorView(void* data, std::size_t size, Precision type)
      : data_(data), size_(size), type_(type) {}
  /// A view of float32 values.
  TensorView(
      std::span<float> values)  // NOLINT(google-explicit-constructor): float32 is the common case
      : TensorView(values.data(), values.size(), Precision::float32) {}
  /// A read-only view; writing through it is undefined.
  static TensorView reading(std::span<const float> values) {
    return {const_cast<float*>(values.data()), values.size(), Precision::float32};
  }

  void* data() const { return data_; }        ///< the first element; null if empty
  std::size_t size() const { return size_; }  ///< in elements
  /// Bytes of all elements.
  std::size_t size_bytes() const { return size_ * element_bytes(type_); }
  bool empty() const { return size_ == 0; }  ///< whether it has no elements
  Precision type() const { return type_; }   ///< type of the elements

  /// The elements as type T: float, device::BFloat16 or device::Float16.
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

/// An array to convert, and the float32 array that receives its values.
struct Widening {
  TensorView from;      ///< read only
  std::span<float> to;  ///< destination of equal size
};

}  // namespace lockstep::inline v0::model

namespace lockstep::inline v0 {

template <>
inline constexpr auto kNamesOf<model::Precision> =
    enum_names<model::Precision>({{model::Precision::float32, "float32"},
                                  {model::Precision::bfloat16, "bfloat16"},
                                  {model::Precision::float16, "float16"},
                                  {model::Precision::float32, "fp32"},
                                  {model::Precision::bfloat16, "bf16"},
                                  {model::Precision::float16, "fp16"}});

}  // namespace lockstep::inline v0
