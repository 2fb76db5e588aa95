// Element types, reduction operations, types for communication, and times of a step.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/base/fields/fields.h"
#include "lockstep/base/float16.h"

namespace lockstep::inline v0::allreduce {

/// The type of elements in communication. 16-bit types halve the bytes, with a rounding error.
enum class WireType { float32, bfloat16, float16 };

std::string to_string(WireType type);  ///< "float32", "bfloat16" or "float16"

/// The factor by which all members multiply values before rounding to float16, which has only 5
/// exponent bits. It is the largest power of two for which the sum of `members` values of magnitude
/// `largest` (the largest of all members) does not overflow; 1 if `largest` is 0 or not finite. So
/// nothing overflows, few values underflow, and no state is kept between steps. nvcc compiles the
/// same function for GPUs.
constexpr float wire_scale(float largest, int members) {
  constexpr float kLargest = 32768;
  // Beyond these the scale, or a result divided by it, would leave float32.
  constexpr int kMinExponent = -126;
  constexpr int kMaxExponent = 100;
  constexpr int kBias = 127;
  if (!(largest > 0) || largest > std::numeric_limits<float>::max()) return 1;
  const float headroom = kLargest / (static_cast<float>(members) * largest);
  int exponent = static_cast<int>(std::bit_cast<std::uint32_t>(headroom) >> 23) - kBias;
  if (exponent < kMinExponent) exponent = kMinExponent;
  if (exponent > kMaxExponent) exponent = kMaxExponent;
  return std::bit_cast<float>(static_cast<std::uint32_t>(exponent + kBias) << 23);
}

/// The bits of a value's magnitude, which compare like the magnitudes; those of infinity for NaN.
constexpr std::uint32_t magnitude_bits(float value) {
  constexpr std::uint32_t kInfinity = 0x7f800000;
  const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(value) & 0x7fffffffU;
  return magnitude < kInfinity ? magnitude : kInfinity;
}

/// A reduction operation.
enum class ReduceOp { sum, max, min, product };

template <typename T>
concept Reducible = std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, Float16> ||
    std::same_as<T, BFloat16> || std::same_as<T, std::uint8_t> || std::same_as<T, std::int32_t> ||
    std::same_as<T, std::int64_t>;

/// Types of fractions, which can be multiplied by any factor.
template <typename T>
concept Fractional = Reducible<T> && !std::integral<T>;

/// A range of elements.
struct Slice {
  std::size_t begin = 0;  ///< first element
  std::size_t end = 0;    ///< one past the last element
};

/// How a flat gradient is split and sent.
struct BucketOptions {
  std::size_t first_bytes = std::size_t{1} << 20;  ///< small, so that communication starts early
  std::size_t bytes = std::size_t{25}
                      << 20;  ///< bucket size; a bucket ends with the parameter that reaches it
  WireType wire = WireType::float32;  ///< the type of elements in communication
};

// Times of a step.

/// Busy seconds of one replica in a step. Waiting inside a collective is excluded: a reduction
/// makes all replicas take as long as the slowest, so the slow replica would look like those that
/// wait for it.
struct BusySeconds {
  double input = 0;    ///< waiting for its own data
  double compute = 0;  ///< forward, backward up to the last gradient
  /// Processor time that the replica's thread used in `compute`; 0 on a GPU.
  double processor = 0;

  /// Adds the times of another step.
  BusySeconds& operator+=(const BusySeconds& more) {
    input += more.input;
    compute += more.compute;
    processor += more.processor;
    return *this;
  }
};

/// Communication time in seconds on the host since construction.
struct CommunicationTimes {
  double exposed = 0;  ///< computation waited for communication
  double waited = 0;   ///< part of `exposed` before all members arrived: the delay of the slowest

  /// Sums the times of several groups or intervals.
  CommunicationTimes operator+(const CommunicationTimes& others) const {
    return {exposed + others.exposed, waited + others.waited};
  }
  /// The times since `earlier`.
  CommunicationTimes operator-(const CommunicationTimes& earlier) const {
    return {exposed - earlier.exposed, waited - earlier.waited};
  }
};

// Elements of a type known only at run time, and loops that reduce them.

/// The type of an element.
enum class ElementType : std::uint8_t { float32, float64, float16, bfloat16, uint8, int32, int64 };

/// Elements of a caller's buffer.
struct Values {
  std::byte* data = nullptr;                ///< not owned
  std::size_t count = 0;                    ///< in elements
  ElementType type = ElementType::float32;  ///< element type
};

std::size_t bytes_per_element(ElementType type);  ///< 1, 2, 4 or 8
/// Size of the buffer in bytes.
inline std::size_t bytes_of(const Values& values) {
  return values.count * bytes_per_element(values.type);
}
std::string_view name_of(ElementType type);  ///< "float32"
std::string_view name_of(ReduceOp op);       ///< "sum"

/// Range `part` of `parts` ranges of `count` elements: whole cache lines, with sizes that differ by
/// at most one line.
Slice slice_of(std::size_t count, ElementType type, int parts, int part);

// 16-bit floats are reduced in float32 and rounded once.

/// into[i] = from[i] op into[i]. The buffers do not overlap.
void reduce_into(std::byte* into, const std::byte* from, std::size_t count, ElementType type,
                 ReduceOp op);

/// Reduces the elements of `slice` over `members`, in this order, and writes the result to all
/// `results`. Results may be buffers of members; the buffers do not overlap otherwise.
void reduce_slice(std::span<const std::byte* const> members, std::span<std::byte* const> results,
                  Slice slice, ElementType type, ReduceOp op);

/// Multiplies values[i] by `factor` in double precision.
template <Fractional T>
void scale(std::span<T> values, double factor);

}  // namespace lockstep::inline v0::allreduce

namespace lockstep::inline v0 {

template <>
inline constexpr auto kNamesOf<allreduce::WireType> =
    enum_names<allreduce::WireType>({{allreduce::WireType::float32, "float32"},
                                     {allreduce::WireType::bfloat16, "bfloat16"},
                                     {allreduce::WireType::float16, "float16"},
                                     {allreduce::WireType::float32, "fp32"},
                                     {allreduce::WireType::bfloat16, "bf16"},
                                     {allreduce::WireType::float16, "fp16"}});

/// The options of gradient buckets.
template <>
struct Fields<allreduce::BucketOptions> {
  using Options = allreduce::BucketOptions;  ///< the struct
  /// Its fields. The command line has only one of the two sizes.
  static constexpr std::tuple list{
      Field{&Options::bytes, {"bucket_bytes", {}, {}, Role::agree, "size of gradient buckets"}},
      Field{&Options::wire,
            {"comm_dtype", "Replicas",
             "Data type in which gradients are exchanged between replicas: float32, "
             "bfloat16 or float16",
             Role::agree, "data type of gradients in communication"}}};
};

}  // namespace lockstep::inline v0
