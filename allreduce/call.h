// What one member calls. Members compare their calls before they trust each other's bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "allreduce/communicator.h"
#include "allreduce/reduce.h"

namespace lockstep::allreduce {

/// An operation and everything about it that members must agree on. Trivially copyable: ranks exchange it as bytes.
struct Call {
  enum class Kind : std::uint8_t { all_reduce, reduce_scatter, gather_slices, broadcast, all_gather, barrier, any };

  Kind kind = Kind::barrier;
  ElementType type = ElementType::float32;  ///< of what moves elements: the first three
  ReduceOp op = ReduceOp::sum;              ///< of what reduces: the first two
  std::int32_t root = 0;                    ///< of broadcast
  std::uint64_t count = 0;                  ///< elements, or bytes of broadcast and all_gather (where they may differ)
  std::uint64_t flag = 0;                   ///< of any; may differ

  static Call all_reduce(const Values& values, ReduceOp op);
  static Call reduce_scatter(const Values& values, ReduceOp op);
  static Call gather_slices(const Values& values);
  static Call broadcast(std::size_t bytes, int root);
  static Call all_gather(std::size_t bytes);
  static Call barrier();
  static Call any(bool mine);
};

/// Why a group cannot go on: the three parts of the Error that each member throws.
struct Failure {
  std::string where;
  std::string needed;
  std::string given;

  [[noreturn]] void raise() const;  ///< throws it as Error (communication)
};

/// Whether two members call the same.
bool is_same(const Call& a, const Call& b);

/// A failure that names the first member whose call differs from the first one's; nothing where all agree. calls[i] is
/// that of member numbers[i].
std::optional<Failure> find_difference(std::span<const Call> calls, std::span<const int> numbers);

}  // namespace lockstep::allreduce
