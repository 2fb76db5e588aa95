// One member's operations of a group that exchanges messages, as a state machine: it advances when
// asked, never waits, and reads no clock.
//
// An operation compares the calls of all members (CallExchange) while it reduces. If they differ,
// its messages do not match, so it waits for ever or fails, and the comparison reports the cause. A
// member that fails sends a notice to all others; the first failure stays.
//
// The ring is reduce-scatter, then all-gather. The buffer is split into one chunk per rank. In each
// of n - 1 steps every rank sends one chunk to its right neighbor and adds its own values to the
// chunk that it receives from the left. Then each rank has one complete chunk, and in n - 1 more
// steps the complete chunks circulate. Every rank sends and receives 2 (n - 1) / n of the buffer
// for any number n of ranks. Chunks are sent in segments, so that one segment is reduced while
// others are in flight. (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters
// of workstations", 2009.)
//
// Each element is completed by one rank, in an order that depends only on its position, so results
// are bitwise equal on all ranks and in every run. Small buffers, for which 2 (n - 1) messages cost
// too much, are sent with the calls that ranks compare.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/allreduce/algorithm/call_exchange.h"
#include "lockstep/allreduce/algorithm/pairwise_exchange.h"
#include "lockstep/allreduce/algorithm/ring_reduction.h"
#include "lockstep/allreduce/member/group_member.h"
#include "lockstep/allreduce/transport/message_buffers.h"
#include "lockstep/allreduce/transport/transport.h"
#include "lockstep/base/error.h"

namespace lockstep::inline v0::allreduce {

/// One operation at a time: one of the functions that start, then advance() until is_done(). After
/// a failure every function throws it.
class Collective {
 public:
  /// `transport` outlives this object, which uses it alone.
  explicit Collective(Transport& transport, const RingOptions& options = {});
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;

  /// The numbers of members in messages; by default the ranks.
  void set_member_numbers(std::vector<int> numbers) { numbers_ = std::move(numbers); }

  /// Compares calls, and does nothing else. `now`: seconds of any clock.
  void start(const Call& call, double now);
  /// Whether values of this size travel with the calls.
  bool is_small(const Values& values) const;
  void start_all_reduce(const Values& values, ReduceOp op, double now);
  void start_reduce_scatter(const Values& values, ReduceOp op, double now);
  void start_gather_slices(const Values& values, double now);

  // The second part of other operations, after the calls have been compared. What they are given is
  // valid until the operation is complete.
  void start_broadcast(std::span<std::byte> values, int root);
  void start_all_gather(std::span<const std::byte> mine, std::span<const Call> calls);
  void start_all_to_all(std::span<const std::span<const std::byte>> parts);
  void start_ring(Transport& transport, const Values& values, ReduceOp op, RingReduction::Part part,
                  std::vector<Slice> chunks = {});

  /// Makes progress without waiting; returns whether it made any. Throws Error (communication), the
  /// same on all members, if their calls differ, and if the transport fails.
  bool advance(double now);
  bool is_done() const { return !is_comparing_ && !is_moving(); }
  /// When the comparison is done: the calls of all members.
  const std::vector<Call>& calls() const { return exchange_.calls(); }
  /// After an all-gather or all-to-all: the bytes of each member.
  std::vector<std::vector<std::byte>> take_received() { return std::move(received_); }

  // Between these two there is one operation of the group: any number of the functions above.
  void begin_operation() { ++begun_; }
  /// A failure of a member that had completed this operation is one of the next.
  void complete_operation();
  /// Throws if another member has failed, unless it had completed this operation: then this member
  /// can complete it too. For long waits.
  void check_others();
  /// Sends a failure to all other members; the first one stays.
  void broadcast_failure(const ErrorMessage& failure);
  /// Records a failure that all members know; the first one stays.
  void record_failure(const ErrorMessage& failure);
  /// Throws the failure, if there is one.
  void throw_if_failed() const;
  const std::optional<ErrorMessage>& failure() const { return failure_; }

  /// Memory that may be sent and received in place, and slots for all other.
  MessageBuffers& buffers() { return buffers_; }
  /// Total time in seconds that this member's operations have waited for the others. Counts the
  /// wait of each when the next one begins.
  double seconds_waited() const { return waited_; }

 private:
  /// What follows a ring.
  enum class Then { nothing, separate, exchange };

  bool is_moving() const { return ring_ || pairwise_ || then_ != Then::nothing || problem_; }
  void announce(const Call& call, const std::byte* values, double now);
  void finish_comparison(double now);
  void count_waiting(double now);
  bool move();
  void move_on();
  void gather(std::span<std::byte> all, std::vector<Slice> chunks);

  Transport& transport_;
  RingOptions options_;
  std::vector<int> numbers_;
  CallExchange exchange_;
  MessageBuffers buffers_;  // for operations; the exchange of calls has its own
  MessageBuffers notices_;  // notices of failure
  bool is_comparing_ = false;
  std::optional<ErrorMessage> failure_;
  std::optional<ErrorMessage> later_;  // becomes failure_ when the operation is complete
  std::uint64_t begun_ = 0;            // operations
  std::uint64_t completed_ = 0;        // all that were begun, or all but one
  double announced_ = 0;
  double last_seconds_ = 0;  // duration of the last exchange
  double waited_ = 0;

  // The operation that is in progress.
  std::optional<RingReduction> ring_;
  std::optional<PairwiseExchange> pairwise_;
  std::optional<ErrorMessage> problem_;  // waits for the comparison, which may know the cause
  Then then_ = Then::nothing;
  Values with_calls_;  // where the values of a small all-reduce belong
  std::span<const std::span<const std::byte>> parts_;
  std::vector<std::byte> gathered_;
  std::vector<Slice> chunks_;  // those of gathered_
  std::vector<std::uint64_t> sizes_;
  std::vector<std::vector<std::byte>> received_;
};

}  // namespace lockstep::inline v0::allreduce
