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

namespace lockstep::inline v0::trace {

/// Reason of the recording of a process that has not failed itself.
inline constexpr std::string_view kBystanderReason = "another rank has failed";
/// Reason of a recording on request, after which the rank continues.
inline constexpr std::string_view kRequestReason = "SIGUSR1";

/// Identifies a process within its job in recordings.
struct RecordedRank {
  std::string job = {};   ///< job ID, equal on all ranks; part of directory names
  std::string host = {};  ///< host name
  int rank = 0;           ///< rank of the process, from 0
  int ranks = 1;          ///< number of ranks of the job
};

/// Sets the description of this process in recordings. Thread-safe.
void set_recorded_rank(RecordedRank rank);
/// Call it when a training begins. Sets the directory for its recordings, and enables the recording
/// of its first failure. If `directory` is empty, missing or not writable, temporary_recordings()
/// is used. Thread-safe.
void set_recording_directory(std::filesystem::path directory);
/// The current value of set_recorded_rank(). Thread-safe.
RecordedRank recorded_rank();
/// Sets the contents of each gradient bucket: "conv4 .. fc1". Thread-safe.
void describe_buckets(std::vector<std::string> contents);

/// Writes the events of all threads of this process, atomically. Returns the file. Thread-safe.
/// Throws Error (output).
std::filesystem::path write_recording(std::string_view reason);

/// Starts writing the recording of a process that fails because of `reason`, if it has trained a
/// step, and its incomplete trace (partial_trace.h). Later failures, which are consequences, write
/// nothing. Thread-safe.
std::future<std::filesystem::path> start_recording_of_failure(std::string_view reason) noexcept;
/// Waits at most 2 seconds for the file of start_recording_of_failure(). Returns its path; empty if
/// nothing was written.
std::filesystem::path finish_recording(std::future<std::filesystem::path> recording) noexcept;
/// Starts and finishes a recording of a failure. Thread-safe.
std::filesystem::path write_recording_of_failure(std::string_view reason) noexcept;
/// Starts writing the recording of this process because another rank has failed (kBystanderReason).
/// Does not wait for it. A later failure of this process is recorded too. Thread-safe.
void write_recording_of_bystander() noexcept;
/// Hint for the end of an error message: "the last events of the ranks are in DIR …", and the file
/// of the incomplete trace.
std::string recording_hint(const std::filesystem::path& recording);

/// A recording that was read.
struct Recording {
  RecordedRank rank;
  std::string reason;                ///< why it was written
  std::int64_t process = 0;          ///< process ID
  double seconds_since_1970 = 0;     ///< when it was written
  std::int64_t time = 0;             ///< when it was written, by the clock of the events
  std::int64_t step = 0;             ///< current step; 0: before the first
  std::vector<std::string> buckets;  ///< contents of the gradient buckets; may be empty
  std::vector<ThreadEvents> threads;
  bool is_cut_off = false;  ///< whether the last line was incomplete and is omitted
};

/// The name of the file of a rank, "recorder-3.jsonl".
std::string recording_name(int rank);
/// Reads a recording. Throws Error (data) for a file that is not one.
Recording read_recording(const std::filesystem::path& path);

}  // namespace lockstep::inline v0::trace
