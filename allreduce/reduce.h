// Elements whose type is known at run time only, and the loops that reduce them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "allreduce/communicator.h"

namespace lockstep::allreduce {

enum class ElementType : std::uint8_t { float32, float64, int32, int64 };

/// Elements of a caller's buffer.
struct Values {
  std::byte* data = nullptr;
  std::size_t count = 0;  ///< in elements
  ElementType type = ElementType::float32;
};

std::size_t bytes_per_element(ElementType type);
std::string_view name_of(ElementType type);
std::string_view name_of(ReduceOp op);

/// A range of elements.
struct Slice {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// The range of `count` elements that is `part`'s of `parts`: whole cache lines, sizes equal to within one line.
Slice slice_of(std::size_t count, ElementType type, int parts, int part);

/// into[i] = from[i] op into[i]. The buffers do not overlap.
void reduce_into(std::byte* into, const std::byte* from, std::size_t count, ElementType type, ReduceOp op);

enum class ResultGoesTo { every_member, first_member };

/// Over the elements of `slice`: op over members' values in the order of `members`, written in place. The buffers do
/// not overlap.
void reduce_slice(std::span<std::byte* const> members, Slice slice, ElementType type, ReduceOp op, ResultGoesTo result);

}  // namespace lockstep::allreduce
