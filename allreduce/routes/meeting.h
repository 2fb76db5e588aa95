// Where the threads of a group meet, show each other what they call, and find out together that they disagree.
#pragma once

#include <array>
#include <cstddef>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "allreduce/call.h"
#include "allreduce/routes/barrier.h"

namespace lockstep::allreduce {

/// State that the members of a group of threads share. `member` is a thread's index in it, 0 .. size() - 1.
class Meeting {
 public:
  /// What all members brought, in member order.
  struct Table {
    std::span<const Call> calls;
    std::span<std::byte* const> data;
  };

  /// `first_number` is what messages call member 0; the others count on from there.
  explicit Meeting(int members, int first_number = 0);

  int size() const { return static_cast<int>(numbers_.size()); }

  /// Waits until every member has met, and returns what each brought; the table is valid until this member meets again.
  /// Throws Error (communication), the same on all members, where their calls differ or a member has left.
  Table meet(int member, const Call& call, std::byte* data = nullptr);

  /// Waits until every member has come here too, such as when nobody needs the others' data any more. Throws as meet()
  /// does.
  void wait();

  /// Makes waits of all members throw; the first failure stays. For a member that the others wait for: one that they do
  /// not wait for may be reading their data, which they are free to drop once they have thrown.
  void fail(const Failure& failure);

  /// The failure of fail() or of a meeting, if any.
  std::optional<Failure> failure() const;

 private:
  struct alignas(64) Turn {
    std::size_t meetings = 0;  // of one member, touched by its thread alone
  };

  [[noreturn]] void raise_failure() const;

  std::vector<int> numbers_;
  Barrier barrier_;
  // Two tables in turn: a member may write to the next while others still read this one, and comes to the one after
  // next only when all have come to the next, which is when they are done with this one.
  std::array<std::vector<Call>, 2> calls_;
  std::array<std::vector<std::byte*>, 2> data_;
  std::vector<Turn> turns_;
  mutable std::mutex mutex_;
  std::optional<Failure> failure_;
};

}  // namespace lockstep::allreduce
