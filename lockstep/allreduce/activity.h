// The activity of one replica, which other threads can observe.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::inline v0::allreduce {

/// The phase of a replica's thread outside of collectives. `idle` is the caller's own time (before,
/// between and after training), `starting` is the setup before the first step (indexes, plans),
/// `ending` is the cleanup after training (threads and buffers). While a replica is idle or
/// starting and no replica waits for another, no progress is required.
enum class Phase : std::uint8_t {
  idle,
  starting,
  input,
  compute,
  update,
  evaluating,
  saving,
  ending
};

/// "idle", "starting", …
std::string_view to_string(Phase phase);

/// Some of the ranks of a job, which have collectives of their own.
struct RankGroup {
  std::uint32_t number = 0;                ///< equal on its ranks; 0: all ranks of the job
  std::vector<std::int32_t> members = {};  ///< ranks of the job, in the order of the group
};

/// A snapshot of an Activity.
struct ActivityState {
  std::int64_t step = -1;     ///< -1: before the first
  Phase phase = Phase::idle;  ///< the current phase
  std::uint64_t entered = 0;  ///< number of collectives entered
  /// Number of collectives that have returned; less than `entered` while one is running.
  std::uint64_t left = 0;
  std::string operation;      ///< name of the last collective entered; empty before the first
  std::int32_t bucket = -1;   ///< bucket of the last collective; -1: none
  std::uint64_t changes = 0;  ///< number of calls that changed anything, including ticks

  /// Whether the replica was in a collective at the snapshot.
  bool in_collective() const { return entered > left; }
};

/// Written by the replica's threads, wait-free with a few atomic stores per call; read at any time
/// from any thread. It has no clock: the observer records the time when `changes` changes.
///
/// enter and leave are called by one thread at a time (which may change between collectives), and
/// so are set_step and set_phase. The two threads may differ, so that one reduces buckets while
/// another computes. tick is thread-safe.
class alignas(64) Activity {
 public:
  Activity() = default;
  /// For a replica that joins after the others have completed `collectives` collectives.
  explicit Activity(std::uint64_t collectives) : entered_(collectives), left_(collectives) {}
  /// For the collectives of a group, beside those of all ranks.
  explicit Activity(RankGroup group) : group_(std::move(group)) {}
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;

  void set_step(std::int64_t step);  ///< begins a step
  void set_phase(Phase phase);       ///< begins a phase
  /// The current phase. Thread-safe.
  Phase phase() const { return phase_.load(std::memory_order_relaxed); }

  /// Reports progress during long work that changes nothing else: a layer, a record, a file, a
  /// segment of a ring. The time between two calls on this object must be shorter than the stall
  /// timeout.
  void tick() { changes_.fetch_add(1, std::memory_order_relaxed); }

  /// Reports that this replica starts a collective and waits for the others. Call it when the
  /// collective starts, not when it is queued. `operation` must be a string literal. Returns the
  /// number of the collective, the same on all replicas.
  std::uint64_t enter(const char* operation, int bucket = -1);
  /// Reports that the collective has ended or failed on this replica.
  void leave();
  /// Sets the number of completed collectives of a replica that was not watched while others
  /// completed them.
  void catch_up(std::uint64_t collectives);

  /// Sets the human-readable contents of each bucket: "conv4 .. fc1". The same on all replicas;
  /// call it at setup and when the buckets change.
  void describe_buckets(std::vector<std::string> contents);
  /// The contents set by describe_buckets().
  std::vector<std::string> bucket_contents() const;

  /// The ranks whose collectives this object records.
  const RankGroup& group() const { return group_; }

  /// A snapshot. The collective and the counts are consistent; step and phase are read just after
  /// them.
  ActivityState state() const;

 private:
  template <typename Change>
  void change_collective(Change change);

  RankGroup group_;
  std::atomic<std::int64_t> step_{-1};
  std::atomic<Phase> phase_{Phase::idle};
  std::atomic<std::uint64_t> changes_{0};

  // A sequence lock: odd while the members below are being written.
  std::atomic<std::uint64_t> version_{0};
  std::atomic<std::uint64_t> entered_{0};
  std::atomic<std::uint64_t> left_{0};
  std::atomic<const char*> operation_{""};
  std::atomic<std::int32_t> bucket_{-1};

  mutable std::mutex contents_lock_;
  std::vector<std::string> contents_;
};

/// Calls enter and leave for a scope; the flight recorder shows it as a span, and whether an
/// exception ended it (base/trace/events.h). Scopes may be nested. Does nothing for a null
/// activity.
class CollectiveScope {
 public:
  /// Enters `operation` (a string literal) of gradient bucket `bucket`; -1: no bucket. `others`:
  /// further replicas of this process, which a collective of processes enters and leaves, too.
  CollectiveScope(Activity* activity, const char* operation, int bucket = -1,
                  std::span<const std::shared_ptr<Activity>> others = {});
  ~CollectiveScope();
  CollectiveScope(const CollectiveScope&) = delete;
  CollectiveScope& operator=(const CollectiveScope&) = delete;

 private:
  Activity* activity_;
  const char* operation_;
  int bucket_;
  std::span<const std::shared_ptr<Activity>> others_;
  std::uint64_t number_ = 0;
  int exceptions_ = std::uncaught_exceptions();
};

/// Sets a phase for a scope and restores the previous one at its end; the flight recorder shows it
/// as a span (base/trace/events.h). Does nothing for a null activity.
class PhaseScope {
 public:
  /// Enters `phase`.
  PhaseScope(Activity* activity, Phase phase);
  ~PhaseScope();
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  Activity* activity_;
  Phase phase_;
  Phase before_ = Phase::idle;
};

}  // namespace lockstep::inline v0::allreduce
