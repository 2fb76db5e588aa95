// Elements whose type is known at run time only, and the loops that reduce them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "allreduce/communicator.h"

namespace lockstep::allreduce {

enum class ElementType : std::uint8_t { float32, float64, float16, bfloat16, int32, int64 };

/// Elements of a caller's buffer.
struct Values {
  std::byte* data = nullptr;
  std::size_t count = 0;  ///< in elements
  ElementType type = ElementType::float32;
};

std::size_t bytes_per_element(ElementType type);
inline std::size_t bytes_of(const Values& values) { return values.count * bytes_per_element(values.type); }
std::string_view name_of(ElementType type);
std::string_view name_of(ReduceOp op);

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
