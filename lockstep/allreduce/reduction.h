// Elements, what reduces them, and what they travel as between replicas.
#pragma once

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/base/float16.h"

namespace lockstep::allreduce {

/// 16-bit types halve the bytes on the wire; the error that this makes is theirs.
enum class WireType { float32, bfloat16, float16 };

/// Reads "float32", "bfloat16", "float16". Throws Error (input) that lists them.
WireType parse_wire_type(std::string_view name);
std::string to_string(WireType type);  ///< the name that parse_wire_type() knows

/// float16 has 5 bits of exponent: what all members multiply by before they round to it. A power of two that makes the
/// sum of `members` values of magnitude `largest`, the largest of all members, as large as fits; 1 where `largest` is 0
/// or not finite. So nothing overflows, little vanishes, and no state is carried from step to step. nvcc compiles the
/// same function for GPUs.
constexpr float wire_scale(float largest, int members) {
  constexpr float kLargest = 32768;
  constexpr int kExponents = 100;  // beyond it the scale itself would leave float32
  constexpr int kBias = 127;
  if (!(largest > 0) || largest > std::numeric_limits<float>::max()) return 1;
  const float room = kLargest / (static_cast<float>(members) * largest);
  const int exponent = static_cast<int>(std::bit_cast<std::uint32_t>(room) >> 23) - kBias;
  return std::bit_cast<float>(static_cast<std::uint32_t>(std::clamp(exponent, -kExponents, kExponents) + kBias) << 23);
}

/// The bits of a value's magnitude, which are ordered as magnitudes are; infinity for what is not finite.
constexpr std::uint32_t magnitude_bits(float value) {
  constexpr std::uint32_t kInfinity = 0x7f800000;
  return std::min(std::bit_cast<std::uint32_t>(value) & 0x7fffffffU, kInfinity);
}

/// How elements of different members become one.
enum class ReduceOp { sum, max, min };

template <typename T>
concept Reducible = std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, Float16> ||
    std::same_as<T, BFloat16> || std::same_as<T, std::int32_t> || std::same_as<T, std::int64_t>;

/// A range of elements.
struct Slice {
  std::size_t begin = 0;  ///< first element
  std::size_t end = 0;    ///< behind the last one
};

// Elements whose type is known at run time only, and the loops that reduce them.

/// The type of an element.
enum class ElementType : std::uint8_t { float32, float64, float16, bfloat16, int32, int64 };

/// Elements of a caller's buffer.
struct Values {
  std::byte* data = nullptr;                ///< not owned
  std::size_t count = 0;                    ///< in elements
  ElementType type = ElementType::float32;  ///< of all of them
};

std::size_t bytes_per_element(ElementType type);  ///< 2, 4 or 8
/// Of the whole buffer.
inline std::size_t bytes_of(const Values& values) { return values.count * bytes_per_element(values.type); }
std::string_view name_of(ElementType type);  ///< "float32"
std::string_view name_of(ReduceOp op);       ///< "sum"

/// The range of `count` elements that is `part`'s of `parts`: whole cache lines, sizes equal to within one line.
Slice slice_of(std::size_t count, ElementType type, int parts, int part);

// 16-bit floats are reduced in float32 and rounded once.

/// into[i] = from[i] op into[i]. The buffers do not overlap.
void reduce_into(std::byte* into, const std::byte* from, std::size_t count, ElementType type, ReduceOp op);

/// Over the elements of `slice`: op over members' values in the order of `members`, written into all of `results`,
/// which may be members' buffers. The buffers do not overlap otherwise.
void reduce_slice(std::span<const std::byte* const> members, std::span<std::byte* const> results, Slice slice,
                  ElementType type, ReduceOp op);

}  // namespace lockstep::allreduce
