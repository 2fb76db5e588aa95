// The processes of this host that write a recording on request, and the directory of recordings
// that have no other one.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::inline v0::trace {

/// A directory that only this user can write: TMPDIR (or /tmp)/lockstep-recorder-UID. If another
/// user has created that one, XDG_RUNTIME_DIR/lockstep-recorder-UID, which is only the second
/// choice because the system removes it when the user logs out. It contains a directory per job,
/// for recordings without another directory, and notes about processes, "pid-PID".
std::filesystem::path temporary_recordings();
/// As above, with explicit values of the user, TMPDIR and XDG_RUNTIME_DIR, which may be empty.
std::filesystem::path temporary_recordings(uid_t user, const std::filesystem::path& temporary,
                                           const std::filesystem::path& runtime);

/// Why `directory` is a link, not a directory, or writable by others than `user`; empty if it is
/// private or does not exist.
std::string why_not_private(const std::filesystem::path& directory, uid_t user);

/// Creates `directory` unless it exists. Throws Error (output) unless it is a directory of this
/// user that no other user can write, and not a link.
void make_private_directory(const std::filesystem::path& directory);

/// A note about a process.
struct RecordedProcess {
  pid_t process = 0;                     ///< process ID
  std::uint64_t start = 0;               ///< ProcessIdentity::start, because IDs are reused
  std::string job = {};                  ///< RecordedRank::job
  std::filesystem::path recording = {};  ///< latest recording; empty before the first
};

/// Writes a note that the calling process writes a recording on SIGUSR1. Also removes recordings,
/// and notes of ended processes, older than a week. Errors are ignored.
void note_process(const std::string& job, const std::filesystem::path& recording) noexcept;
/// Removes the note about the calling process.
void remove_process_note() noexcept;
/// The running processes with a note in `directory` (temporary_recordings()).
std::vector<RecordedProcess> noted_processes(const std::filesystem::path& directory);

}  // namespace lockstep::inline v0::trace
