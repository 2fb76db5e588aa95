// Compares the recordings of the ranks of a job: where each rank is, and which rank the others wait
// for.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/trace/recording.h"

namespace lockstep::inline v0::apps {

/// A collective of a rank.
struct RecordedCollective {
  std::uint64_t sequence = 0;  ///< its number, the same on all ranks
  const char* name = "";       ///< "all_reduce"
  std::int32_t bucket = -1;    ///< gradient bucket; -1: none
  std::int64_t step = 0;
  bool has_left = false;  ///< whether the rank has completed it; false if it failed
  bool has_failed = false;
};

/// The last collective that a rank has entered; nullopt if its recording has none.
std::optional<RecordedCollective> last_collective(const trace::Recording& recording);

/// What a thread was doing when its recording was written.
struct ThreadState {
  std::string thread;              ///< its name
  std::vector<std::string> spans;  ///< open spans, outermost first: "step", "conv1 backward"
  double seconds = 0;              ///< since the innermost span began, or since the last event
};

/// The states of the threads of a rank, those with open spans first.
std::vector<ThreadState> thread_states(const trace::Recording& recording);

/// An event of a recording. Valid as long as the recording.
struct RecordedEvent {
  const trace::Event* event;
  const std::string* thread;  ///< name of its thread
};

/// The last `count` events of all threads, in the order of their times.
std::vector<RecordedEvent> last_events(const trace::Recording& recording, std::int64_t count);

/// Compares the recordings of a job, in sentences: "rank 2 entered bucket 3 (conv1 .. conv2) of
/// step 100; rank 0 never left bucket 2 (fc1)". Names ranks without a recording, and counts skipped
/// recordings: only those of the job of the newest one are compared. Requires at least one.
std::vector<std::string> compare_recordings(std::vector<trace::Recording> recordings);

/// The comparison as a JSON object: "job", "size", "time", "older_recordings", "reasons", "missing"
/// ranks, and the "reading" in words; for each of "ranks" its "last_collective" and "threads", and
/// its last `events` events.
nlohmann::ordered_json comparison_json(std::vector<trace::Recording> recordings,
                                       std::int64_t events);

}  // namespace lockstep::inline v0::apps
