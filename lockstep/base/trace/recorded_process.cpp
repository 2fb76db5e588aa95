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
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file/atomic_file.h"
#include "lockstep/base/json/json.h"
#include "lockstep/base/json/json_member.h"
#include "lockstep/base/system/file_descriptor.h"
#include "lockstep/base/system/ownership.h"
#include "lockstep/base/system/process.h"
#include "lockstep/base/text.h"

namespace lockstep::inline v0::trace {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kPrivate = 0700;
constexpr std::string_view kNote = "pid-";

fs::path note_of(pid_t process) {
  return temporary_recordings() / fmt::format("{}{}", kNote, process);
}

/// The process of a note with the file name `name`; nullopt for other files.
std::optional<pid_t> process_of(std::string_view name) {
  if (!name.starts_with(kNote)) return std::nullopt;
  const auto process = parse_number<pid_t>(name.substr(kNote.size()));
  return process && *process > 0 ? process : std::nullopt;
}

/// The process of a note, if the note is complete and the process runs.
std::optional<RecordedProcess> running_process(const fs::path& note) {
  constexpr std::size_t kMaxBytes = 16 << 10;
  const auto process = process_of(note.filename().native());
  if (!process) return std::nullopt;
  std::string text(kMaxBytes, '\0');
  std::ifstream file(note, std::ios::binary);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  try {
    const nlohmann::json object = parse_json(text, ErrorCategory::data, note.native());
    RecordedProcess noted{.process = *process,
                          .start = json_member<std::uint64_t>(object, "start"),
                          .job = json_member<std::string>(object, "job"),
                          .recording = decode_bytes(json_member<std::string>(object, "recording"))};
    if (is_process_gone({noted.process, noted.start})) return std::nullopt;
    return noted;
  } catch (const std::exception&) {  // a file of another program
    return std::nullopt;
  }
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
    if (!running_process(entry.path())) fs::remove_all(entry.path(), ignored);
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
    const fs::path absolute = recording.empty() ? recording : fs::absolute(recording, unknown);
    const nlohmann::json note = {{"job", job},
                                 {"start", this_process().start},
                                 {"recording", encode_bytes(absolute.native())}};
    write_file_atomically(note_of(::getpid()), dump_json(note) + "\n", Durability::cached);
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
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, ignored))
    if (auto process = running_process(entry.path())) processes.push_back(std::move(*process));
  return processes;
}

}  // namespace lockstep::inline v0::trace
