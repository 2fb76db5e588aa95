// The trace of a training: which steps are recorded, and the file that is written.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "lockstep/base/atomic_file.h"
#include "lockstep/base/error.h"
#include "lockstep/base/trace/rank_trace.h"
#include "lockstep/strategy/fit_options.h"
#include "lockstep/strategy/strategy.h"

namespace lockstep::strategy {

/// Collects the events of the flight recorder during some steps (FitOptions::trace) and writes
/// those of all ranks to one file. The functions are collective; without a file, they do nothing.
class Tracing {
 public:
  /// `strategy` must outlive this object.
  Tracing(Strategy& strategy, TraceOptions options);
  Tracing(const Tracing&) = delete;
  Tracing& operator=(const Tracing&) = delete;
  ~Tracing();

  /// Opens the file. Throws Error (output) if it cannot be written, on all ranks.
  void begin();
  /// Begins with the first of the steps: compares the clocks.
  void before_step(std::int64_t step);
  /// Collects the events of `step`, and writes the file after the last of the steps. Returns the
  /// seconds that took which are not part of training.
  double after_step(std::int64_t step);
  /// Writes the file, unless that is done. Warns if no step was traced.
  void finish();
  /// For a training that fails, on the ranks on which it does: starts to write what this rank has
  /// recorded, if it was recording, to a file of its own (trace::partial_trace_file).
  void fail() noexcept;
  /// Throws the Error (output) for which the file could not be written, on all ranks.
  void throw_if_lost() const;

 private:
  trace::RankTrace recorded() const;
  std::optional<trace::RankTrace> take_part();
  void write(const std::vector<trace::RankTrace>& ranks);
  void describe(const std::vector<trace::RankTrace>& ranks) const;

  Strategy& strategy_;
  TraceOptions options_;
  std::optional<AtomicFile> file_;  // of the chief
  std::mutex mutex_;  // of the next two, which another thread takes when the process fails
  std::optional<trace::Collector> collector_;
  std::vector<trace::ClockOffset> clock_;
  std::size_t limit_ = 0;          // events of a rank
  std::int64_t full_at_step_ = 0;  // 0: not full
  std::int64_t traced_ = 0;        // number of steps
  bool is_done_ = false;
  std::optional<Error> lost_;
};

}  // namespace lockstep::strategy
