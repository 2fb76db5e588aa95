#include "apps/lockstep/doctor/data.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "apps/lockstep/doctor/folders.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/system/file_descriptor.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/files.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/open_data.h"
#include "lockstep/data/source/folder_walk.h"

namespace lockstep::inline v0::apps::doctor {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kRead = std::size_t{32} << 20;
constexpr double kSlowRead = 50;  // MB/s

/// Returns why `file` cannot be read; empty if it can. Measures `megabytes_per_second` unless it is
/// null.
std::string read_file(const fs::path& file, double* megabytes_per_second) {
  const FileDescriptor opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!opened.is_open()) return std::strerror(errno);
  std::string buffer(std::size_t{1} << 20, '\0');
  const std::size_t limit = megabytes_per_second == nullptr ? 1 : kRead;
  if (megabytes_per_second != nullptr) ::posix_fadvise(opened.get(), 0, 0, POSIX_FADV_DONTNEED);
  const auto begin = std::chrono::steady_clock::now();
  std::size_t total = 0;
  ssize_t got = 1;
  while (total < limit &&
         (got = ::read(opened.get(), buffer.data(), std::min(limit, buffer.size()))) > 0)
    total += static_cast<std::size_t>(got);
  std::string why = got < 0 ? std::strerror(errno) : "";
  const double seconds = seconds_since(begin);
  constexpr std::size_t kTelling = 1'000'000;
  if (megabytes_per_second != nullptr && total >= kTelling)
    *megabytes_per_second = static_cast<double>(total) / 1e6 / std::max(seconds, 1e-6);
  return why;
}

std::uintmax_t size_of(const fs::path& file) {
  std::error_code error;
  const auto bytes = fs::file_size(file, error);
  if (error)
    throw Error(ErrorCategory::data, file.string(), "expected a file that can be read",
                error.message());
  return bytes;
}

/// The files in `folder` and its subfolders, sorted, without hidden files, which may differ between
/// hosts.
std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  data::for_files_below(folder, [&](const fs::path& file) {
    files.push_back(file);
    return true;
  });
  std::ranges::sort(files);
  return files;
}

/// Collects the files of a data set and hashes their names and sizes.
class Survey {
 public:
  /// Throws Error (data) if the file does not exist.
  void add_file(const fs::path& file) {
    const auto bytes = size_of(file);
    hash_.add(fmt::format("{} {};", file.filename().string(), bytes));
    facts_.bytes += static_cast<std::int64_t>(bytes);
    ++facts_.files;
    files_.push_back(file);
  }

  /// Adds the folder of a class: the names of all files, and the sizes of only the first and the
  /// last one, because each size requires a system call.
  void add_folder(const fs::path& folder) {
    const std::vector<fs::path> files = files_below(folder);
    hash_.add(fmt::format("{} {};", folder.filename().string(), files.size()));
    for (const fs::path& file : files) hash_.add(file.lexically_relative(folder).string() + ';');
    facts_.files += static_cast<std::int64_t>(files.size());
    ++facts_.folders;
    if (files.empty()) return;
    for (const fs::path& file : {files.front(), files.back()}) {
      hash_.add(fmt::format("{};", size_of(file)));
      files_.push_back(file);
    }
  }

  /// All files; for folders of images, a sample.
  const std::vector<fs::path>& files() const { return files_; }
  DataFacts facts() const {
    DataFacts facts = facts_;
    facts.fingerprint = checkpoint::hex16(hash_.value());
    return facts;
  }

 private:
  DataFacts facts_;
  checkpoint::Hasher hash_;
  std::vector<fs::path> files_;
};

/// Reads the first and the last file.
void read_some(DataFacts& facts, const std::vector<fs::path>& files, bool measures) {
  for (const fs::path& file : files) {
    const bool is_first = &file == &files.front();
    if (!is_first && &file != &files.back()) continue;
    const std::string why =
        read_file(file, measures && is_first ? &facts.megabytes_per_second : nullptr);
    if (!why.empty()) facts.failure = fmt::format("{} cannot be read: {}", file.string(), why);
  }
}

std::string count_text(const DataFacts& facts) {
  const std::string files = counted(facts.files, "file");
  if (facts.folders > 0) return fmt::format("{} in {}", files, counted(facts.folders, "folder"));
  return fmt::format("{} of {}", files, human_bytes(facts.bytes));
}

/// Throws, on all ranks, if `spec` is invalid on every rank; then it is an error of the command
/// line, not of a host.
void require_meaning(const Reports<DataFacts>& reports) {
  const bool means_nothing =
      reports.missing.empty() && std::ranges::all_of(reports.answered, [](const auto& report) {
        return !report.facts.unknown.empty();
      });
  if (!means_nothing) return;
  throw Error(ErrorCategory::input,
              ErrorMessage::unpack(decode_bytes(reports.answered.front().facts.unknown)));
}

}  // namespace

DataFacts examine_data(const std::string& spec, const std::string& data_dir, bool measures) {
  try {
    data::DataSpecOptions options;
    options.data_dir = data_dir;
    Survey survey;
    for (const fs::path& entry : data::data_files(spec, options)) {
      std::error_code unreadable;  // add_file() then reports the error
      fs::is_directory(entry, unreadable) ? survey.add_folder(entry) : survey.add_file(entry);
    }
    DataFacts facts = survey.facts();
    read_some(facts, survey.files(), measures);
    return facts;
  } catch (const Error& error) {
    return {.failure = error.what(),
            .unknown = error.category() == ErrorCategory::input
                           ? encode_bytes(error.message().pack())
                           : ""};
  }
}

Reports<DataFacts> measure_data(Ranks& ranks, const std::string& spec,
                                const std::string& data_dir) {
  auto reports =
      ranks.measure<DataFacts>("data", [spec, data_dir, measures = ranks.mine().local_rank == 0] {
        return examine_data(spec, data_dir, measures);
      });
  require_meaning(reports);
  return reports;
}

Outcome judge_data(const Reports<DataFacts>& reports, const std::string& spec) {
  if (spec.empty()) return skipped_without("data", "--data SPEC");
  Outcome outcome{.check = "data"};
  add_missing(outcome, reports.missing, kCheckTheDisk);
  const Reported<DataFacts>* first = nullptr;
  for (const auto& report : reports.answered) {
    const DataFacts& facts = report.facts;
    if (!facts.failure.empty()) {
      outcome.fail(report.place, facts.failure,
                   "copy the files to this path on every host, readable for the user of "
                   "the job, or correct --data");
      continue;
    }
    if (first == nullptr) first = &report;
    if (facts.fingerprint != first->facts.fingerprint)
      outcome.fail(report.place,
                   fmt::format("{} has {}, and rank {} has different ones: {}", report.place.host,
                               count_text(facts), first->place.rank, count_text(first->facts)),
                   "copy the same files to every host (rsync --checksum), or use a shared folder");
    if (facts.megabytes_per_second > 0 && facts.megabytes_per_second < kSlowRead)
      outcome.warn(
          report.place,
          fmt::format("{} reads {:.2g} MB/s", report.place.host, facts.megabytes_per_second),
          "copy the files to a local disk; lockstep data benchmark measures the "
          "rate in training");
  }
  outcome.summary = first == nullptr ? spec + ": see below"
                                     : fmt::format("{}: {}", spec, count_text(first->facts));
  if (first != nullptr && first->facts.megabytes_per_second > 0)
    outcome.summary += fmt::format(", {:.3g} MB/s", first->facts.megabytes_per_second);
  if (first != nullptr && first->facts.files == 0)
    outcome.summary = fmt::format("{}: generated, no files", spec);
  return outcome;
}

}  // namespace lockstep::inline v0::apps::doctor
