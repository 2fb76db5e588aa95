// How bytes move between members that share no memory. There is no collective here: collectives are
// state machines over this contract (algorithm/), which do not know what implements it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::inline v0::allreduce {

/// What a message is for. A message never matches the receive of another tag.
enum class Tag : std::uint8_t { call, values, failure };

/// A message that is being sent or received; empty when it is complete.
struct Message {
  std::uint64_t id = 0;  ///< chosen by the transport; 0: none

  bool is_in_flight() const { return id != 0; }
};

/// A message that has arrived and that nobody has received.
struct Arrival {
  int from = 0;
  std::size_t bytes = 0;
};

/// The right to use a transport, which one thread at a time has, for a whole operation. Another
/// thread may leave work for the one that has it.
class Turn {
 public:
  /// Held by the thread that uses the transport.
  std::timed_mutex mutex;

  /// Leaves `work` for the thread that has the turn, or runs it now if nobody has. Thread-safe.
  void leave(const void* owner, std::function<void()> work);
  /// Drops what `owner` left. Thread-safe.
  void drop(const void* owner);
  /// Runs what was left, in order. Called by the thread that has the turn.
  void run_left();
  /// Runs what was left if nobody has the turn. Called by a thread that does not have it.
  void run_left_if_free();

 private:
  std::atomic<bool> has_left_{false};
  std::mutex left_mutex_;
  std::vector<std::pair<const void*, std::function<void()>>> left_;
};

/// One member's end of a set of members that exchange messages, apart from those of all other sets.
/// Messages from one member with one tag are received in the order in which they were sent. Only
/// subset() and duplicate() wait, for the members of the new set; they are called without the turn,
/// all others but abandon() with it.
///
/// A function throws Error (communication) if the other member cannot be reached, or sent more than
/// was expected.
class Transport {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  /// Members destroy it in the same order as they created it, unless it was abandoned.
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// The node of a member: equal numbers are on one host. The same on all members.
  virtual int node_of(int member) const = 0;

  /// Posts a message to `to`. `bytes` stay valid and unchanged until it is complete, which says
  /// nothing about the receiver.
  virtual Message send(int to, Tag tag, std::span<const std::byte> bytes) = 0;
  /// Posts the receive of the next message of `from`, which has at most the size of `memory`. The
  /// memory stays valid until it is complete.
  virtual Message receive(int from, Tag tag, std::span<std::byte> memory) = 0;
  /// Moves what can be moved, and returns whether `message` is complete; then it is empty.
  /// `received`, if not null, becomes the size of a message that was received.
  virtual bool poll(Message& message, std::size_t* received = nullptr) = 0;
  /// A message with `tag` that no receive was posted for, if one has arrived.
  virtual std::optional<Arrival> probe(Tag tag) = 0;
  /// Sleeps until something may move, for at most `longest`. Returns false at once if this
  /// transport cannot tell; the caller then polls.
  virtual bool sleep(std::chrono::nanoseconds /*longest*/) { return false; }

  /// A set of these `members`, in this order: null on the others. Every member calls it, in the
  /// same order among all such calls; only `members` wait for each other.
  virtual std::shared_ptr<Transport> subset(std::span<const int> members) = 0;
  /// A set of the same members.
  std::shared_ptr<Transport> duplicate();

  /// The turn of all sets that use the same connections.
  virtual Turn& turn() = 0;
  /// Whether messages are possible, as they are until MPI ends.
  virtual bool is_open() const = 0;
  /// Gives the set up after a failure: the destructor does not wait for other members.
  virtual void abandon() = 0;
};

}  // namespace lockstep::inline v0::allreduce
