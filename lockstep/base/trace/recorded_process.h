// The processes of this host that write a recording when they are asked to, and where recordings
// are that have no directory of their own.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::trace {

/// A directory below the temporary one that only this user can write: TMPDIR (or
/// /tmp)/lockstep-recorder-UID. Recordings without a directory of their own are below it, in one
/// named by the job. Its files "pid-PID" are notes about processes.
std::filesystem::path temporary_recordings();
/// The same of another user and another TMPDIR (empty: /tmp).
std::filesystem::path temporary_recordings(uid_t user, const std::filesystem::path& temporary);

/// Makes `directory`, or verifies that it is one. Throws Error (output) unless it is a directory of
/// this user, not a link, that no other user can write.
void make_private_directory(const std::filesystem::path& directory);

/// A note about a process.
struct RecordedProcess {
  pid_t process = 0;                     ///< its ID
  std::string job = {};                  ///< of RecordedRank
  std::filesystem::path recording = {};  ///< its last one; empty before the first
};

/// Notes the calling process: it writes a recording on SIGUSR1. Also removes recordings, and notes
/// of ended processes, that are older than a week. Does nothing if it cannot write.
void note_process(const std::string& job, const std::filesystem::path& recording) noexcept;
/// Removes the note about the calling process.
void remove_process_note() noexcept;
/// The processes that are noted in `directory` (temporary_recordings()) and still run.
std::vector<RecordedProcess> noted_processes(const std::filesystem::path& directory);

}  // namespace lockstep::trace
