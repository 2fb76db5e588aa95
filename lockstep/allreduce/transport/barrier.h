// Waiting asleep for a number to change, between threads or between processes that share its memory.
// (Hubertus Franke, Rusty Russell, "Fuss, futexes and furwocks: fast userlevel locking in Linux", 2002; std::atomic
// waits within one process only.)
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

#include "lockstep/allreduce/group_member.h"

namespace lockstep::allreduce {

using FutexWord = std::atomic<std::uint32_t>;

/// Sleeps while `word` is `expected`, for `longest` at most; may wake early.
void sleep_while(const FutexWord& word, std::uint32_t expected, std::chrono::nanoseconds longest);

/// Wakes all who sleep on `word`.
void wake_sleepers(const FutexWord& word);

// Where members that share memory meet, show each other what they call, and find out together that they disagree.

/// Where a member's values lie, in terms that the others understand: an address between threads, a segment and an
/// offset between processes.
struct Place {
  std::uint64_t segment = 0;
  std::uint64_t offset = 0;
};

struct MeetingOptions {
  std::vector<int> numbers = {};  ///< what messages call the members; 0, 1, 2, … if empty
  /// Whether each member may keep a core busy while it waits: otherwise the one waited for may need that core.
  bool own_cores = true;
  /// Called now and then by a member that waits long; what it throws ends the wait.
  std::function<void()> look_around = {};
};

/// One member's seat at the meeting of a group. Used by that member's thread alone, but for fail().
///
/// Meetings and waits are rounds. A member announces that it has come to a round in a line of memory of its own, with
/// what it brings, and looks for the same in the lines of the others: one transfer of a cache line each way. It looks
/// for a while, then sleeps until the other comes.
class Meeting {
 public:
  static constexpr std::size_t kNoteBytes = 2048;

  /// Bytes of shared memory for a meeting of `members`.
  static std::size_t bytes_for(int members);

  /// `memory` is zeroed, aligned to 64 bytes, bytes_for(members) long and the same for all members.
  Meeting(std::shared_ptr<std::byte> memory, int members, int member, MeetingOptions options = {});

  void number_members(std::vector<int> numbers) { options_.numbers = std::move(numbers); }

  int size() const { return members_; }
  int member() const { return member_; }

  /// Waits until every member has met. What each brought is in call(), place() and note() until this member meets or
  /// waits again; a note must have been written before. Throws Error (communication), the same on all members, where
  /// their calls differ or a member has failed.
  void meet(const Call& call, const Place& place = {});
  const Call& call(int member) const;
  const Place& place(int member) const;

  /// Up to kNoteBytes that this member brings to its next meeting.
  std::byte* next_note() { return note_at(member_, round_ + 1); }
  const std::byte* note(int member) const { return note_at(member, round_); }

  /// Waits until every member has come here too, such as when nobody needs the others' data any more. Throws as meet()
  /// does.
  void wait();

  /// Seconds spent in meetings and waits, all in all, but for waits too short to measure.
  double seconds_waited() const { return waited_.count(); }

  /// Makes all members throw, in this and later rounds; the first failure stays. For a member that the others wait for:
  /// one that they do not wait for may be reading their data, which they are free to drop once they have thrown. Any
  /// thread.
  void fail(const Failure& failure) const;
  /// The failure of fail() or of a meeting, if any.
  std::optional<Failure> failure() const;

 private:
  struct Line;
  struct Board;

  Line& line(int member, std::uint32_t round) const;
  std::byte* note_at(int member, std::uint32_t round) const;
  void arrive();
  void wait_for(Line& line);
  void wait_long_for(Line& line, std::chrono::steady_clock::time_point begin) const;
  bool has_arrived(const Line& line) const;
  void throw_if_failed() const;
  void finish_for_the_dead() const;

  std::shared_ptr<std::byte> memory_;
  Board* board_;
  int members_;
  int member_;
  MeetingOptions options_;
  std::uint32_t round_ = 0;
  std::chrono::duration<double> waited_{0};
};

// A meeting whose members are threads of one process.

/// Element i is member i's seat; its number in messages is first_number + i.
std::vector<Meeting> make_meeting_of_threads(int members, int first_number = 0);

/// Whether any member brought a flag to the Call::any of this round.
bool any_flag(const Meeting& meeting);

}  // namespace lockstep::allreduce
