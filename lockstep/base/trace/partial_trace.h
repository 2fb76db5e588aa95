// Writes the incomplete trace of a process that fails.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>

#include "lockstep/base/trace/chrome_trace.h"
#include "lockstep/base/trace/rank_trace.h"

namespace lockstep::inline v0::trace {

/// The file for the part of one rank: trace.rank-2.pftrace beside trace.pftrace; `file` itself if
/// the job has one rank.
std::filesystem::path partial_trace_file(const std::filesystem::path& file, int rank, int ranks);

/// Returns the incomplete trace; nullopt: nothing was recorded. Called once, by any thread.
using TraceSnapshot = std::function<std::optional<RankTrace>()>;

/// From now on, a failure of this process writes the result of `snapshot` to `file` by `write`;
/// nothing if `snapshot` is empty. Waits while another thread calls the previous one. Thread-safe.
void set_partial_trace(std::filesystem::path file, TraceSnapshot snapshot, WriteTrace write);

/// Starts writing the file, unless it was started before. Thread-safe.
void start_partial_trace() noexcept;
/// Waits at most 2 seconds for the file. Returns its path; empty if nothing was written.
/// Thread-safe.
std::filesystem::path finish_partial_trace() noexcept;

}  // namespace lockstep::inline v0::trace
