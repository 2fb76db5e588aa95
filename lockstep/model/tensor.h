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

#include "lockstep/base/float16.h"

namespace lockstep::model {

/// Extents of an array without the batch, outermost first: [H, W, C] for an image, [F] for a
/// vector.
using Shape = std::vector<std::int64_t>;

/// Product of the extents; 1 for an empty shape (a scalar).
std::int64_t element_count(const Shape& shape);

/// "[28, 28, 1]"
std::string to_string(const Shape& shape);

// The type of activations and of the weights that matrix products read. Parameters, gradients and
// statistics are always float32.

class StatisticsExchange;

/// The supported types of activations.
enum class Precision { float32, bfloat16, float16 };

/// Parses "float32", "bfloat16" or "float16". Throws Error (input) that lists them.
Precision parse_precision(std::string_view name);
std::string to_string(Precision precision);  ///< the name that parse_precision() accepts

/// Bytes of one element.
constexpr std::size_t element_bytes(Precision precision) {
  return precision == Precision::float32 ? 4 : 2;
}

/// Whether a convolution on a GPU, in 16-bit training, also computes the statistics for the
/// following normalization. `where_faster` measures this once per shape.
enum class FusedStatistics { never, where_faster, where_possible };

/// Which interface of cuDNN computes the convolutions on a GPU. `automatic`: for each shape and
/// pass the faster one, measured once.
enum class Convolutions { automatic, graph, legacy };

/// Which activations a training keeps for the backward pass: all, or those between segments of the
/// network, such as the blocks of a transformer. The others are computed again in backward, from
/// the same numbers in the same way: on a CPU, and with deterministic algorithms, the results are
/// the same bits (recomputation.h).
enum class Recompute { none, blocks };
/// Parses "none" or "blocks". Throws Error (input) that lists them.
Recompute parse_recompute(std::string_view name);
std::string to_string(Recompute recompute);  ///< the name that parse_recompute() accepts

/// How a model computes.
struct ComputeOptions {
  Precision precision = Precision::float32;  ///< the type of activations
  bool tf32 = false;  ///< allows a GPU to round float32 multiplicands to 10 mantissa bits; no
                      ///< effect on other devices
  /// Uses only algorithms that give the same bits in every run, chosen without measurement. Always
  /// true on the CPU.
  bool deterministic = false;
  /// Treated as `never` if `deterministic`.
  FusedStatistics fused_statistics = FusedStatistics::where_faster;
  Convolutions convolutions = Convolutions::automatic;  ///< except those that fuse statistics
  /// The most bytes of logits of a training pass that are stored whole. If an output has more and
  /// only sparse categorical cross-entropy reads it, a Dense or TiedDense computes them and their
  /// loss in blocks of about so many bytes. 0: 64 MiB, on a GPU 256 MiB.
  std::size_t logits_bytes = 0;
  /// The group that synchronizes batch normalization in training; must outlive the model. Null:
  /// each model uses its own samples only.
  StatisticsExchange* statistics = nullptr;
  /// Called repeatedly while plans are created, which can take long if algorithms are measured.
  std::function<void()> progress = {};
  Recompute recompute = Recompute::none;  ///< in training
};

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
  bool empty() const { return size_ == 0; }  ///< whether there are none
  Precision type() const { return type_; }   ///< of each element

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
  std::span<float> to;  ///< of the same size
};

}  // namespace lockstep::model
