// Background prefetching of batches.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

#include "lockstep/data/pipeline/batch_reader.h"
#include "lockstep/data/record/record_error.h"
#include "lockstep/data/sample/batch.h"

namespace lockstep::inline v0::data {

/// Adapts the number of active threads. It starts with the maximum, so that the first steps are
/// ready soon. If for `kIdleSteps` steps every slot of the stream was ready at each request, one
/// thread is deactivated. If more than `kWaitShare` of the time of `kWindowSteps` steps was spent
/// waiting, one thread is activated. Each time a thread proves to be needed, the number of idle
/// steps before the next deactivation doubles, so that the number of threads settles. The decisions
/// depend on timing; the output of the threads does not.
class WorkerTuner {
 public:
  static constexpr int kWindowSteps = 16;
  static constexpr double kWaitShare = 0.02;
  static constexpr int kIdleSteps = 128;
  static constexpr int kMaxIdleSteps = 64 * kIdleSteps;

  /// `max_workers` >= 1.
  explicit WorkerTuner(int max_workers) : max_workers_(max_workers), workers_(max_workers) {}

  /// Adds one step: the seconds waited for it, the seconds since the previous step was delivered
  /// (waiting included), and whether all slots were ready when it was requested. Returns workers().
  int add_step(double waited, double elapsed, bool all_ready);

  int workers() const { return workers_; }

 private:
  int max_workers_;
  int workers_;
  int window_steps_ = 0;
  double waited_ = 0;
  double elapsed_ = 0;
  int idle_steps_ = 0;
  int patience_ = kIdleSteps;
  bool has_shrunk_ = false;  // since it last grew
};

// Batches prepared ahead of use by background threads.

/// A ring of up to `prefetch` slots, fewer if the memory limit requires it. Each slot holds the
/// parts of one step. Every step is cut into as many pieces as the maximum number of threads.
/// Active threads process the pieces in step order. next() swaps the parts of a finished slot with
/// the caller's, so memory is reused and nothing is copied. Locks are acquired per piece; waiting
/// threads sleep. The number of active threads follows the time that the caller waits
/// (WorkerTuner); the others sleep. The contents of a step do not depend on it.
///
/// The first error in data order wins, regardless of which thread encounters which error first: the
/// steps before it are delivered, then next() throws it, again on every further call. Bad records
/// count when their step is delivered, not when it is read ahead.
class PrefetchStream final : public BatchStream {
 public:
  PrefetchStream(Pipeline pipeline, const StreamOptions& options);
  ~PrefetchStream() override;

  bool next(std::vector<Batch>& parts) override;
  bool next_if_ready(std::vector<Batch>& parts) override;
  double seconds_waited() const override { return seconds_waited_; }
  std::vector<BadRecord> bad_records() const override;
  int workers() const override { return tuner_.workers(); }
  double processor_seconds() const override {
    return processor_seconds_.load(std::memory_order_relaxed);
  }
  /// Maximum number of prefetched steps.
  int slots() const { return static_cast<int>(slots_.size()); }

 private:
  struct Slot {
    std::vector<Batch> parts;
    int unfinished_pieces = 0;
    std::exception_ptr error;  // error of the first failed piece
    int failed_piece = 0;
    BadRecordProblems bad;
  };
  struct Piece {
    Slot* slot = nullptr;
    int number = 0;
    Range samples;
  };

  using Clock = std::chrono::steady_clock;

  void work(int thread, const std::stop_token& stop);
  bool can_claim(int thread) const;
  bool is_ready(std::int64_t step) const;
  bool all_ready() const;
  void deliver(std::vector<Batch>& parts, double waited, bool were_ready);
  Piece claim_piece();
  void begin_step(Slot& slot);
  void finish_piece(const Piece& piece, BadRecordProblems bad, std::exception_ptr error);
  void count_bad_records(Slot& slot);
  std::size_t slot_number(std::int64_t step) const {
    return static_cast<std::size_t>(step % static_cast<std::int64_t>(slots_.size()));
  }
  Slot& slot_of(std::int64_t step) { return slots_[slot_number(step)]; }

  BatchReader reader_;
  int pieces_per_step_;
  std::int64_t last_step_;  // one past the last step
  double seconds_waited_ = 0;
  std::atomic<double> processor_seconds_ = 0;
  WorkerTuner tuner_;
  std::optional<Clock::time_point> last_delivery_;
  BadRecordProblems bad_records_;  // in the delivered steps

  std::mutex mutex_;
  std::condition_variable_any slot_free_;
  std::condition_variable step_ready_;
  std::vector<Slot> slots_;
  std::int64_t claimed_step_;  // the step whose pieces are being claimed
  int next_piece_ = 0;         // the next one of that step
  std::int64_t next_step_;     // the step that next() returns
  bool failed_ = false;        // no piece of a later step is claimed
  int workers_;                // threads with a lower number may claim pieces

  // Last member: the threads stop before anything they use is destroyed.
  std::vector<std::jthread> threads_;
};

}  // namespace lockstep::inline v0::data
