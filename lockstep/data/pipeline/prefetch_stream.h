// How many threads should make batches.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

#include "lockstep/data/batch.h"
#include "lockstep/data/pipeline/batch_reader.h"

namespace lockstep::data {

/// Begins with as many as there may be, so that the first steps come soon. Where for `kIdleSteps` steps every batch of
/// the stream's slots was ready whenever one was asked for, one fewer works; where more than `kWaitShare` of
/// `kWindowSteps` steps was waiting, one more. Each time that a thread proves to have been needed, the next one is
/// sent away only after twice as many idle steps, so that the number settles. It depends on times, and what the threads
/// make does not depend on it.
class WorkerTuner {
 public:
  static constexpr int kWindowSteps = 16;
  static constexpr double kWaitShare = 0.02;
  static constexpr int kIdleSteps = 128;
  static constexpr int kMostIdleSteps = 64 * kIdleSteps;

  /// `most` >= 1.
  explicit WorkerTuner(int most) : most_(most), workers_(most) {}

  /// Of each step: the seconds that were waited for it, those since the step before it was given (waiting included),
  /// and whether all slots were ready when it was asked for. Returns workers().
  int add_step(double waited, double elapsed, bool all_ready);

  int workers() const { return workers_; }

 private:
  int most_;
  int workers_;
  int window_steps_ = 0;
  double waited_ = 0;
  double elapsed_ = 0;
  int idle_steps_ = 0;
  int patience_ = kIdleSteps;
  bool has_shrunk_ = false;  // and not grown since
};

// Batches made ahead of their use by background threads.

/// A ring of `prefetch` slots, or as many as fit into the memory that they may have, each with the parts of one step.
/// Every step is cut into as many pieces as there may be threads at work; those that are at work take the pieces in
/// step order, and next() swaps a finished slot's parts with the caller's, so memory goes round and nothing is copied.
/// Locks are taken per piece, and whoever waits sleeps. How many threads work at once is a matter of the time that the
/// caller waits (WorkerTuner); the others sleep. What a step holds does not depend on it.
///
/// The first error in the order of the data wins, whichever thread meets which first: the steps before it are still
/// delivered, then next() throws it, and again when called again.
class PrefetchStream final : public BatchStream {
 public:
  PrefetchStream(Pipeline pipeline, const StreamOptions& options);
  ~PrefetchStream() override;

  bool next(std::vector<Batch>& parts) override;
  bool next_if_ready(std::vector<Batch>& parts) override;
  double seconds_waited() const override { return seconds_waited_; }
  std::vector<BadRecord> bad_records() const override { return reader_.bad_records(); }
  int workers() const override { return tuner_.workers(); }
  /// Steps that are made ahead, at most.
  int slots() const { return static_cast<int>(slots_.size()); }

 private:
  struct Slot {
    std::vector<Batch> parts;
    int pieces_left = 0;
    std::exception_ptr error;  // of the foremost piece that failed
    int failed_piece = 0;
  };
  struct Piece {
    Slot* slot = nullptr;
    int number = 0;
    Range samples;
  };

  using Clock = std::chrono::steady_clock;

  void work(int thread, const std::stop_token& stop);
  bool can_take(int thread) const;
  bool is_ready(std::int64_t step) const;
  bool all_ready() const;
  void give(std::vector<Batch>& parts, double waited, bool were_ready);
  Piece take_piece();
  void begin_step(Slot& slot);
  void finish_piece(const Piece& piece, std::exception_ptr error);
  std::size_t slot_number(std::int64_t step) const {
    return static_cast<std::size_t>(step % static_cast<std::int64_t>(slots_.size()));
  }
  Slot& slot_of(std::int64_t step) { return slots_[slot_number(step)]; }

  BatchReader reader_;
  int pieces_per_step_;
  std::int64_t last_step_;  // the step after the last
  double seconds_waited_ = 0;
  WorkerTuner tuner_;
  std::optional<Clock::time_point> last_given_;

  std::mutex mutex_;
  std::condition_variable_any slot_free_;
  std::condition_variable step_ready_;
  std::vector<Slot> slots_;
  std::int64_t taking_step_;  // whose pieces are being taken
  int taking_piece_ = 0;
  std::int64_t next_step_;  // that next() gives
  bool failed_ = false;     // no piece of a later step is taken
  int workers_;             // threads of a lower number may take pieces

  std::vector<std::jthread> threads_;  // last: they stop before anything they use goes
};

}  // namespace lockstep::data
