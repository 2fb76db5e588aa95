// The part of folders.h that looks at the data.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "apps/lockstep/doctor/folders.h"
#include "data/dataset.h"
#include "device/error.h"

namespace lockstep::apps::doctor {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kRead = std::size_t{32} << 20;
constexpr double kSlowRead = 50;  // MB/s

/// FNV-1a, for a comparison within one job.
class Fingerprint {
 public:
  void add(std::string_view text) {
    for (const char letter : text) value_ = (value_ ^ static_cast<unsigned char>(letter)) * 0x100000001b3ULL;
  }
  std::string text() const { return fmt::format("{:016x}", value_); }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325ULL;
};

/// Why `file` cannot be read; empty where it can. `megabytes_per_second` is measured where it is not null.
std::string read_file(const fs::path& file, double* megabytes_per_second) {
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return std::strerror(errno);
  std::string buffer(std::size_t{1} << 20, '\0');
  const std::size_t limit = megabytes_per_second == nullptr ? 1 : kRead;
  if (megabytes_per_second != nullptr) ::posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
  const auto begin = std::chrono::steady_clock::now();
  std::size_t total = 0;
  ssize_t got = 1;
  while (total < limit && (got = ::read(descriptor, buffer.data(), std::min(limit, buffer.size()))) > 0)
    total += static_cast<std::size_t>(got);
  const std::string why = got < 0 ? std::strerror(errno) : "";
  ::close(descriptor);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  constexpr std::size_t kTelling = 1'000'000;
  if (megabytes_per_second != nullptr && total >= kTelling)
    *megabytes_per_second = static_cast<double>(total) / 1e6 / std::max(seconds, 1e-6);
  return why;
}

/// Adds what `path`, a file or the folder of a class, is. Throws Error (data) where it is not there.
void add_entry(DataFacts& facts, Fingerprint& fingerprint, const fs::path& path) {
  std::error_code error;
  const bool is_folder = fs::is_directory(path, error);
  const auto bytes = is_folder ? 0 : fs::file_size(path, error);
  if (error) throw Error(ErrorCategory::data, path.string(), "needed a file that can be read", error.message());
  fingerprint.add(fmt::format("{} {};", path.filename().string(), bytes));
  facts.bytes += static_cast<std::int64_t>(bytes);
  ++facts.files;
}

/// Of many files the first and the last stand for all.
void read_some(DataFacts& facts, const std::vector<fs::path>& files, bool measures) {
  for (const fs::path& file : files) {
    const bool is_first = &file == &files.front();
    if ((!is_first && &file != &files.back()) || fs::is_directory(file)) continue;
    const std::string why = read_file(file, measures && is_first ? &facts.megabytes_per_second : nullptr);
    if (!why.empty()) facts.failure = fmt::format("{} cannot be read: {}", file.string(), why);
  }
}

DataFacts look_at_data(const std::string& spec, const std::string& data_dir, bool measures) {
  DataFacts facts;
  Fingerprint fingerprint;
  try {
    data::DataSpecOptions options;
    options.data_dir = data_dir;
    const std::vector<fs::path> files = data::data_files(spec, options);
    for (const fs::path& file : files) add_entry(facts, fingerprint, file);
    read_some(facts, files, measures);
  } catch (const std::exception& error) {
    facts.failure = error.what();
  }
  facts.fingerprint = fingerprint.text();
  return facts;
}

std::string count_text(const DataFacts& facts) {
  return facts.bytes == 0 ? fmt::format("{} folders or empty files", facts.files)
                          : fmt::format("{} file{} of {}", facts.files, facts.files == 1 ? "" : "s",
                                        human_bytes(static_cast<double>(facts.bytes)));
}

}  // namespace

Reports<DataFacts> measure_data(Ranks& ranks, const std::string& spec, const std::string& data_dir) {
  return ranks.measure<DataFacts>("data", [spec, data_dir, measures = ranks.mine().local_rank == 0] {
    return look_at_data(spec, data_dir, measures);
  });
}

Outcome judge_data(const Reports<DataFacts>& reports, const std::string& spec) {
  Outcome outcome{.check = "data"};
  outcome.skipped = spec.empty();
  if (outcome.skipped) {
    outcome.summary = "not asked for: --data SPEC";
    return outcome;
  }
  add_late(outcome, reports.late, "the disk or file server does not answer: look at df, mount and dmesg of that host");
  const Reported<DataFacts>* first = nullptr;
  for (const auto& report : reports.answered) {
    const DataFacts& facts = report.facts;
    if (!facts.failure.empty()) {
      outcome.add({.ranks = {report.place.rank},
                   .level = Level::problem,
                   .what = facts.failure,
                   .remedy = "put the files there on every host, readable for the user of the job, or name them as "
                             "--data of lockstep train does"});
      continue;
    }
    if (first == nullptr) first = &report;
    if (facts.fingerprint != first->facts.fingerprint)
      outcome.add({.ranks = {report.place.rank},
                   .level = Level::problem,
                   .what = fmt::format("{} has {}, and rank {} other ones: {}", report.place.host, count_text(facts),
                                       first->place.rank, count_text(first->facts)),
                   .remedy = "copy the same files to every host (rsync --checksum), or use a folder that all share"});
    if (facts.megabytes_per_second > 0 && facts.megabytes_per_second < kSlowRead)
      outcome.add({.ranks = {report.place.rank},
                   .level = Level::warning,
                   .what = fmt::format("{} reads {:.2g} MB/s", report.place.host, facts.megabytes_per_second),
                   .remedy = "copy the files to a local disk; lockstep data benchmark tells what a training gets"});
  }
  outcome.summary = first == nullptr ? spec + ": see below" : fmt::format("{}: {}", spec, count_text(first->facts));
  if (first != nullptr && first->facts.megabytes_per_second > 0)
    outcome.summary += fmt::format(", {:.3g} MB/s", first->facts.megabytes_per_second);
  if (first != nullptr && first->facts.files == 0) outcome.summary = fmt::format("{}: made up, no files", spec);
  return outcome;
}

}  // namespace lockstep::apps::doctor
