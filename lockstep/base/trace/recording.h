// Recordings: the events of the flight recorder (events.h) of one rank as a file of JSON lines,
// recorder-RANK.jsonl. The first line describes the rank and the reason; each other line is an
// event.
#pragma once

#include <cstdint>
#include <filesystem>
#include <future>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/trace/events.h"
#include "lockstep/base/trace/recorded_process.h"

namespace lockstep::trace {

/// The reason of a recording of a process that has not failed itself.
inline constexpr std::string_view kBystanderReason = "another rank has failed";
/// The reason of a recording that was asked for, of a rank that goes on.
inline constexpr std::string_view kRequestReason = "SIGUSR1";

/// This process within its job, as its recordings name it.
struct RecordedRank {
  std::string job = {};   ///< the same on all ranks of the job; in the names of directories
  std::string host = {};  ///< name of its host
  int rank = 0;           ///< of the process, from 0
  int ranks = 1;          ///< number of ranks of the job
};

/// Sets how recordings describe this process. Thread-safe.
void set_recorded_rank(RecordedRank rank);
/// Sets the directory for the recordings of a training that begins, whose first failure is
/// recorded. It need not exist: one that cannot be written, and an empty one, is replaced by
/// temporary_recordings(). Thread-safe.
void set_recording_directory(std::filesystem::path directory);
/// What set_recorded_rank() has set. Thread-safe.
RecordedRank recorded_rank();
/// Sets the contents of each gradient bucket: "conv4 .. fc1". Thread-safe.
void describe_buckets(std::vector<std::string> contents);

/// Writes the events of all threads of this process, atomically. Returns the file. Thread-safe.
/// Throws Error (output).
std::filesystem::path write_recording(std::string_view reason);

/// Starts to write the recording of a process that fails because of `reason`, if it has trained a
/// step, and what it has traced (partial_trace.h). Later failures of the process write nothing:
/// they are consequences. Thread-safe.
std::future<std::filesystem::path> start_recording_of_failure(std::string_view reason) noexcept;
/// Waits at most 2 seconds for what start_recording_of_failure() has started. Returns the file;
/// empty if nothing was written.
std::filesystem::path finish_recording(std::future<std::filesystem::path> recording) noexcept;
/// Both at once. Thread-safe.
std::filesystem::path write_recording_of_failure(std::string_view reason) noexcept;
/// Starts to write the recording of a process that has not failed, because another rank has
/// (kBystanderReason), and does not wait for it. A later failure of its own is recorded too.
/// Thread-safe.
void write_recording_of_bystander() noexcept;
/// Where to look, for the end of an error message: "the last events of the ranks are in DIR …", and
/// the file of the trace that was written.
std::string recording_hint(const std::filesystem::path& recording);

/// A recording that was read.
struct Recording {
  RecordedRank rank;
  std::string reason;                ///< why it was written
  std::int64_t process = 0;          ///< process ID
  double seconds_since_1970 = 0;     ///< when it was written
  std::int64_t time = 0;             ///< the same on the clock of the events
  std::int64_t step = 0;             ///< in which the rank was then; 0: before the first
  std::vector<std::string> buckets;  ///< contents of the gradient buckets; may be empty
  std::vector<ThreadEvents> threads;
  bool is_cut_off = false;  ///< whether the last line was incomplete, and is left out
};

/// The name of the file of a rank, "recorder-3.jsonl".
std::string recording_name(int rank);
/// Reads a recording. Throws Error (data) for a file that is not one.
Recording read_recording(const std::filesystem::path& path);

}  // namespace lockstep::trace
