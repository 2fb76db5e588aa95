// Futexes: sleeping until a word changes, between threads or between processes that share its
// memory. (Hubertus Franke, Rusty Russell, "Fuss, futexes and furwocks: fast userlevel locking in
// Linux", 2002; std::atomic waits within one process only.)
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/allreduce/member/group_member.h"

namespace lockstep::inline v0::allreduce {

using FutexWord = std::atomic<std::uint32_t>;

/// Sleeps while `word` is `expected`, for at most `longest`; may wake early.
void sleep_while(const FutexWord& word, std::uint32_t expected, std::chrono::nanoseconds longest);

/// Wakes all sleepers on `word`.
void wake_sleepers(const FutexWord& word);

// A barrier of members that share memory. Members compare their calls, and all fail if these
// differ.

/// The location of a member's values: an address between threads, a segment and an offset between
/// processes.
struct Place {
  std::uint64_t segment = 0;
  std::uint64_t offset = 0;
};

struct BarrierOptions {
  std::vector<int> numbers = {};  ///< numbers of the members in messages; empty: 0, 1, 2, …
  /// Whether members may spin: each has its own core, so the member that they wait for does not
  /// need it.
  bool own_cores = true;
  /// Called periodically during long waits; an exception ends the wait.
  std::function<void()> poll_group = {};
};

/// One member's view of the barrier of a group. Except for fail(), used only by that member's
/// thread.
///
/// Barriers and waits are rounds. To arrive, a member writes the round and its data to its own line
/// of memory. Then it polls the lines of the other members: one cache line transfer in each
/// direction. It spins for a while, then sleeps until the other member arrives. start() and poll()
/// are the same without spinning and sleeping.
class Barrier {
 public:
  static constexpr std::size_t kNoteBytes = 512;

  /// Size of the shared memory for a barrier of `members`.
  static std::size_t bytes_for(int members);

  /// `memory` is zeroed, aligned to 64 bytes, bytes_for(members) long, and shared by all members.
  Barrier(std::shared_ptr<std::byte> memory, int members, int member, BarrierOptions options = {});

  void set_member_numbers(std::vector<int> numbers) { options_.numbers = std::move(numbers); }

  int size() const { return members_; }
  int member() const { return member_; }

  /// Waits until every member has arrived. The data of each member is in call(), place() and note()
  /// until this member calls exchange() or wait() again. Write the note before the call. Throws
  /// Error (communication), the same on all members, if their calls differ or a member has failed.
  void exchange(const Call& call, const Place& place = {});
  /// Arrives. Throws like exchange().
  void start(const Call& call, const Place& place = {});
  /// Whether every member has arrived. Throws like exchange().
  bool poll();
  const Call& call(int member) const;
  const Place& place(int member) const;

  /// This member's note for its next barrier, up to kNoteBytes.
  std::byte* next_note() { return note_at(member_, round_ + 1); }
  const std::byte* note(int member) const { return note_at(member, round_); }

  /// Waits until every member has arrived, for example before data is changed that other members
  /// may still read. Throws like exchange().
  void wait();

  /// Total time in seconds in barriers and waits, without waits too short to measure.
  double seconds_waited() const { return waited_.count(); }

  /// Makes all members throw in this and later rounds; the first failure stays. Call it only for a
  /// member that the others wait for: otherwise it may still be reading their data, which they may
  /// free after they have thrown. Thread-safe.
  void fail(const ErrorMessage& failure) const;
  /// The failure of fail() or of a barrier, if any.
  std::optional<ErrorMessage> failure() const;

 private:
  struct Line;
  struct Board;

  Line& line(int member, std::uint32_t round) const;
  std::byte* note_at(int member, std::uint32_t round) const;
  void arrive();
  void compare() const;
  void wait_for_others();
  void wait_for(Line& line);
  void wait_long_for(Line& line, std::chrono::steady_clock::time_point begin) const;
  bool has_arrived(const Line& line) const;
  void throw_if_failed() const;
  void throw_if_failed_without(const Line& line) const;
  void report_dead_writer() const;

  std::shared_ptr<std::byte> memory_;
  Board* board_;
  int members_;
  int member_;
  BarrierOptions options_;
  std::uint32_t round_ = 0;
  int arrived_ = 0;  // members after this one that have been seen in this round
  std::chrono::duration<double> waited_{0};
};

// A barrier of threads of one process.

/// Element i is for member i, which messages call first_number + i.
std::vector<Barrier> make_barrier_of_threads(int members, int first_number = 0);

/// Whether any member has set the flag of Call::any in this round.
bool any_flag(const Barrier& barrier);

}  // namespace lockstep::inline v0::allreduce
