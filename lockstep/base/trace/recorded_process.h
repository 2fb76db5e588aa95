// The processes of this host that write a recording when they are asked to, and where recordings
// are that have no directory of their own.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::trace {

/// A directory that only this user can write: TMPDIR (or /tmp)/lockstep-recorder-UID. If another
/// user has made that one, XDG_RUNTIME_DIR/lockstep-recorder-UID, which is not the first choice
/// because the system removes it when the user logs out. Recordings without a directory of their
/// own are below it, in one named by the job. Its files "pid-PID" are notes about processes.
std::filesystem::path temporary_recordings();
/// As above for another user and other values of TMPDIR and XDG_RUNTIME_DIR, which may be empty.
std::filesystem::path temporary_recordings(uid_t user, const std::filesystem::path& temporary,
                                           const std::filesystem::path& runtime);

/// Why `directory` is not a directory, and no link, that only `user` can write; empty if it is, or
/// if there is nothing.
std::string why_not_private(const std::filesystem::path& directory, uid_t user);

/// Makes `directory`, or verifies that it is one. Throws Error (output) unless it is a directory of
/// this user, not a link, that no other user can write.
void make_private_directory(const std::filesystem::path& directory);

/// A note about a process, which says which one of those with this ID it is.
struct RecordedProcess {
  pid_t process = 0;                     ///< its ID
  std::uint64_t start = 0;               ///< of ProcessIdentity
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
