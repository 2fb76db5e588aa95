// What a process that fails has recorded of a trace that is not complete yet.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>

#include "lockstep/base/trace/rank_trace.h"

namespace lockstep::trace {

/// The file for the part of one rank: trace.rank-2.pftrace beside trace.pftrace; `file` itself if
/// the job has one rank.
std::filesystem::path partial_trace_file(const std::filesystem::path& file, int rank, int ranks);

/// Returns what was recorded; nullopt: nothing. Called once, by any thread.
using TakeTrace = std::function<std::optional<RankTrace>()>;

/// From now on, a failure of this process writes what `take` returns to `file`. Without `take`, it
/// writes nothing. Waits while another thread calls the previous one. Thread-safe.
void set_partial_trace(std::filesystem::path file, TakeTrace take);

/// Starts to write the file, unless that was done before. Thread-safe.
void start_partial_trace() noexcept;
/// Waits at most 2 seconds for it. Returns the file; empty if nothing was written. Thread-safe.
std::filesystem::path finish_partial_trace() noexcept;

}  // namespace lockstep::trace
