// A trace of the steps of a job: their recording, and the file.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "lockstep/allreduce/communicator.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file/atomic_file.h"
#include "lockstep/base/trace/chrome_trace.h"
#include "lockstep/base/trace/rank_trace.h"
#include "lockstep/job/trace_options.h"

namespace lockstep::inline v0::job {

class Session;

/// Collects the events of the flight recorder during some steps and writes
/// those of all ranks to one file. The functions are collective; without a file, they do nothing.
class Tracing {
 public:
  /// Traces the ranks of `session`, which must outlive this object, with `ranks` as their
  /// communicator. `is_on_gpus`: whether their reductions are; then an event shows when one was
  /// enqueued. `write`: in Chrome's format, unless given.
  Tracing(const Session& session, allreduce::Communicator ranks, bool is_on_gpus,
          TraceOptions options, trace::WriteTrace write = trace::write_chrome_trace);
  Tracing(const Tracing&) = delete;
  Tracing& operator=(const Tracing&) = delete;
  ~Tracing();

  /// Opens the file. Throws Error (output) if it cannot be written, on all ranks.
  void begin();
  /// Starts recording before the first traced step: compares the clocks.
  void before_step(std::int64_t step);
  /// Collects the events of `step`, and writes the file after the last traced step. Returns the
  /// seconds to exclude from the training time.
  double after_step(std::int64_t step);
  /// Writes the file unless it is written. Warns if no step was traced.
  void finish();
  /// Called on ranks on which the training fails: starts to write the events of this rank, if it
  /// was recording, to a separate file (trace::partial_trace_file).
  void fail() noexcept;
  /// Throws Error (output) on all ranks if the file could not be written.
  void throw_if_lost() const;

 private:
  trace::RankTrace recorded() const;
  std::optional<trace::RankTrace> extract_trace();
  void write(const std::vector<trace::RankTrace>& ranks);
  void describe(const std::vector<trace::RankTrace>& ranks) const;

  bool is_chief() const { return ranks_.rank() == 0; }

  const Session& session_;
  allreduce::Communicator ranks_;
  bool is_on_gpus_;
  TraceOptions options_;
  trace::WriteTrace write_;
  std::optional<AtomicFile> file_;  // only on the chief
  std::mutex mutex_;  // protects the next two, which another thread reads when the process fails
  std::optional<trace::Collector> collector_;
  std::vector<trace::ClockOffset> clock_;
  std::size_t limit_ = 0;          // maximum number of events per rank
  std::int64_t full_at_step_ = 0;  // 0: not full
  std::int64_t traced_ = 0;        // number of traced steps
  bool is_done_ = false;
  std::optional<Error> lost_;
};

}  // namespace lockstep::inline v0::job
