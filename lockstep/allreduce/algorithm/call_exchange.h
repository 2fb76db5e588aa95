// The comparison of the calls of all ranks in log2(n) messages, which also carry the values of a
// small all-reduce.
//
// In step k every rank exchanges the calls that it has, and its partial sums, with the rank whose
// number differs in bit k, and adds the sums. After log2(n) steps every rank has all calls and the
// total. If n is not a power of two, the ranks above the largest power of two first send theirs to
// a lower rank, and receive the result at the end. (Recursive doubling: Thakur, Rabenseifner and
// Gropp, "Optimization of collective communication operations in MPICH", 2005.)
//
// A rank that receives a different call sends no more values; all ranks still receive all calls.
// Both partners of an exchange add the lower rank's values first, so results are bitwise equal on
// all ranks.
#pragma once

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "lockstep/allreduce/member/group_member.h"
#include "lockstep/allreduce/transport/message_buffers.h"
#include "lockstep/allreduce/transport/transport.h"

namespace lockstep::inline v0::allreduce {

/// One exchange at a time, driven by advance(). Its functions throw the errors of the transport.
class CallExchange {
 public:
  /// `value_bytes`: maximum size of the values sent with a call, the same on all members of
  /// `transport`, which outlives this object.
  CallExchange(Transport& transport, std::size_t value_bytes);

  /// Starts the exchange of `call`. If `values` is not null, the `count` values there, of the type
  /// of `call`, are copied, and reduced by its operation.
  void start(const Call& call, const std::byte* values = nullptr);
  /// Makes progress without waiting; returns whether it made any.
  bool advance();
  bool is_done() const { return stage_ == Stage::done; }

  /// When done: the calls of all ranks.
  const std::vector<Call>& calls() const { return calls_; }
  /// When done, and all calls are the same: the reduced values, until the next start().
  const std::byte* result() const { return buffers_.slot(sums_); }

 private:
  enum class Stage { to_core, exchange, from_core, done };
  /// Ranks whose calls are in one message: two ranges, [first, second).
  using Ranks = std::array<std::pair<int, int>, 2>;

  bool is_extra() const { return rank_ >= core_; }
  int partner() const;
  Ranks calls_of(int rank) const;
  void begin_stage();
  void end_stage();
  void next_stage();
  void send();
  void receive();
  void unpack_received();
  void add_received();

  Transport& transport_;
  int rank_ = 0;
  int size_ = 1;
  int core_ = 1;  // the largest power of two that is not above size_
  std::size_t max_bytes_;
  MessageBuffers buffers_;
  std::size_t sums_ = 0;  // the slot of the partial sums; the other one is for received ones
  std::vector<Call> calls_;
  bool has_values_ = false;  // there are values, and all known calls are equal
  std::size_t received_bytes_ = 0;
  Stage stage_ = Stage::done;
  int distance_ = 1;
};

}  // namespace lockstep::inline v0::allreduce
