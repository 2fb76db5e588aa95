// What one replica is doing, for whoever watches it from another thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::allreduce {

/// What a replica's own thread is at, collectives aside. `idle` is the caller's own time (before, between and after
/// training), `starting` the set-up before the first step (indexes, plans), `ending` what is left after the training
/// (threads and buffers that go): while a replica is in one of the first two, a job in which nobody waits for anyone
/// may be silent for as long as it likes.
enum class Phase : std::uint8_t { idle, starting, input, compute, update, evaluating, saving, ending };

/// "idle", "starting", …
std::string_view to_string(Phase phase);

/// One look at an Activity.
struct ActivityState {
  std::int64_t step = -1;     ///< -1: before the first
  Phase phase = Phase::idle;  ///< what the replica does now
  std::uint64_t entered = 0;  ///< collectives
  std::uint64_t left = 0;     ///< collectives that have returned; less than `entered` while one is under way
  std::string operation;      ///< of the last collective entered; empty before any
  std::int32_t bucket = -1;   ///< that it reduced; -1: none
  std::uint64_t changes = 0;  ///< calls that changed anything, ticks included

  bool in_collective() const { return entered > left; }  ///< whether it was inside a collective when this was read
};

/// Written by the replica's threads, at the price of a few atomic stores a call and without waiting for anyone; read
/// at any time from any thread. There is no clock in it: the watcher notes when it sees `changes` change.
///
/// enter and leave come from one thread at a time (which may change between collectives), set_step and set_phase too;
/// these two threads may differ, so that a thread reduces buckets while another computes. tick comes from any thread.
class alignas(64) Activity {
 public:
  Activity() = default;
  /// Of a replica that joins others when each of them has entered and left `collectives` collectives.
  explicit Activity(std::uint64_t collectives) : entered_(collectives), left_(collectives) {}
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;

  void set_step(std::int64_t step);  ///< the step that begins
  void set_phase(Phase phase);       ///< what the replica turns to; see Phase
  /// What the replica was last seen doing; any thread may ask.
  Phase phase() const { return phase_.load(std::memory_order_relaxed); }

  /// Says that work goes on, in work that is long and changes nothing else: a layer, a record, a file, a segment of a
  /// ring. The longest piece of work without a call on this object has to be shorter than the stall timeout.
  void tick() { changes_.fetch_add(1, std::memory_order_relaxed); }

  /// From here on this replica takes part in a collective and waits for the others. To be called where the collective
  /// starts, not where it is queued. `operation` must live for ever: a string literal.
  void enter(const char* operation, int bucket = -1);
  /// The collective is over for this replica, or has failed.
  void leave();

  /// What is in each bucket, for people: "conv4 .. fc1". Same on all replicas; once at set-up, or when buckets change.
  void describe_buckets(std::vector<std::string> contents);
  /// What describe_buckets() was told.
  std::vector<std::string> bucket_contents() const;

  /// Collective and counts are of one moment, step and phase of the moment after.
  ActivityState state() const;

 private:
  template <typename Change>
  void change_collective(Change change);

  std::atomic<std::int64_t> step_{-1};
  std::atomic<Phase> phase_{Phase::idle};
  std::atomic<std::uint64_t> changes_{0};

  // A sequence lock: odd while the values below it are being written.
  std::atomic<std::uint64_t> version_{0};
  std::atomic<std::uint64_t> entered_{0};
  std::atomic<std::uint64_t> left_{0};
  std::atomic<const char*> operation_{""};
  std::atomic<std::int32_t> bucket_{-1};

  mutable std::mutex contents_lock_;
  std::vector<std::string> contents_;
};

/// enter and leave around a scope. Does nothing for a null activity, so that code that nobody watches needs no branch.
class CollectiveScope {
 public:
  /// Enters `operation` (a string that outlives it), of gradient bucket `bucket` where it is one; null watches nothing.
  CollectiveScope(Activity* activity, const char* operation, int bucket = -1) : activity_(activity) {
    if (activity_ != nullptr) activity_->enter(operation, bucket);
  }
  ~CollectiveScope() {
    if (activity_ != nullptr) activity_->leave();
  }
  CollectiveScope(const CollectiveScope&) = delete;
  CollectiveScope& operator=(const CollectiveScope&) = delete;

 private:
  Activity* activity_;
};

/// A phase for a scope; the one before comes back with its end, also by an exception. Does nothing for null.
class PhaseScope {
 public:
  /// Enters `phase`; null watches nothing.
  PhaseScope(Activity* activity, Phase phase) : activity_(activity) {
    if (activity_ == nullptr) return;
    before_ = activity_->phase();
    activity_->set_phase(phase);
  }
  ~PhaseScope() {
    if (activity_ != nullptr) activity_->set_phase(before_);
  }
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  Activity* activity_;
  Phase before_ = Phase::idle;
};

}  // namespace lockstep::allreduce
