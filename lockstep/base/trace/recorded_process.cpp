#include "lockstep/base/trace/recorded_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <optional>
#include <string_view>
#include <system_error>

#include "lockstep/base/atomic_file.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/base/system/ownership.h"
#include "lockstep/base/system/process.h"
#include "lockstep/base/text.h"

namespace lockstep::trace {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kPrivate = 0700;
constexpr std::string_view kNote = "pid-";

fs::path note_of(pid_t process) {
  return temporary_recordings() / fmt::format("{}{}", kNote, process);
}

/// The process of a note that is called `name`; nullopt for another file.
std::optional<pid_t> process_of(std::string_view name) {
  if (!name.starts_with(kNote)) return std::nullopt;
  const auto process = parse_number<pid_t>(name.substr(kNote.size()));
  return process && *process > 0 ? process : std::nullopt;
}

[[noreturn]] void refuse_directory(const fs::path& path, const std::string& actual) {
  throw Error(ErrorCategory::output, path.string(),
              "expected a directory of this user that only this user can write", actual);
}

void remove_old(const fs::path& directory) {
  const auto before = fs::file_time_type::clock::now() - std::chrono::weeks(1);
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, ignored)) {
    if (entry.last_write_time(ignored) >= before) continue;
    const auto process = process_of(entry.path().filename().native());
    if (!process || is_process_gone(*process)) fs::remove_all(entry.path(), ignored);
  }
}

}  // namespace

std::string why_not_private(const fs::path& directory, uid_t user) {
  const FileDescriptor opened(
      ::open(directory.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (opened.is_open()) return foreign_writer(opened.get(), user);
  return errno == ENOENT ? "" : std::generic_category().message(errno);
}

fs::path temporary_recordings(uid_t user, const fs::path& temporary, const fs::path& runtime) {
  std::error_code unknown;
  const std::string name = fmt::format("lockstep-recorder-{}", user);
  fs::path first = (fs::is_directory(temporary, unknown) ? temporary : fs::path("/tmp")) / name;
  if (!why_not_private(first, user).empty() && fs::is_directory(runtime, unknown))
    return runtime / name;
  return first;
}

fs::path temporary_recordings() {
  const auto value = [](const char* name) {
    const char* const found = std::getenv(name);
    return found == nullptr ? "" : found;
  };
  return temporary_recordings(::geteuid(), value("TMPDIR"), value("XDG_RUNTIME_DIR"));
}

void make_private_directory(const fs::path& directory) {
  if (::mkdir(directory.c_str(), kPrivate) != 0 && errno != EEXIST)
    refuse_directory(directory, fmt::format("got {}", std::generic_category().message(errno)));
  if (const std::string why = why_not_private(directory, ::geteuid()); !why.empty())
    refuse_directory(directory, why);
}

void note_process(const std::string& job, const fs::path& recording) noexcept {
  try {
    make_private_directory(temporary_recordings());
    remove_old(temporary_recordings());
    std::error_code unknown;
    const fs::path whole = recording.empty() ? recording : fs::absolute(recording, unknown);
    write_file_atomically(note_of(::getpid()), fmt::format("{}\n{}\n", job, whole.string()),
                          Durability::cached);
  } catch (const std::exception&) {
    return;
  }
}

void remove_process_note() noexcept {
  try {
    std::error_code ignored;
    fs::remove(note_of(::getpid()), ignored);
  } catch (const std::exception&) {
    return;
  }
}

std::vector<RecordedProcess> noted_processes(const fs::path& directory) {
  std::vector<RecordedProcess> processes;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, ignored)) {
    const auto process = process_of(entry.path().filename().native());
    if (!process || is_process_gone(*process)) continue;
    RecordedProcess noted{.process = *process};
    std::ifstream file(entry.path());
    std::string recording;
    if (!std::getline(file, noted.job) || !std::getline(file, recording)) continue;
    noted.recording = recording;
    processes.push_back(std::move(noted));
  }
  return processes;
}

}  // namespace lockstep::trace
