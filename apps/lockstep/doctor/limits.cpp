#include "apps/lockstep/doctor/limits.h"

#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <system_error>

#include "lockstep/data/record/record_file.h"

namespace lockstep::apps::doctor {
namespace {

constexpr std::int64_t kNone = -1;
constexpr std::int64_t kOwnFiles = 64;            // of libraries, MPI and the program, in a job of one rank
constexpr std::int64_t kLockedBytes = 1LL << 30;  // that RDMA of large gradients may want

std::int64_t as_number(rlim_t limit) { return limit == RLIM_INFINITY ? kNone : static_cast<std::int64_t>(limit); }

std::string limit_text(std::int64_t limit) { return limit == kNone ? "unlimited" : std::to_string(limit); }

}  // namespace

LimitFacts measure_limits() {
  LimitFacts facts;
  rlimit files{};
  rlimit locked{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
    facts.open_files = as_number(files.rlim_cur);
    facts.open_files_hard = as_number(files.rlim_max);
  }
  if (::getrlimit(RLIMIT_MEMLOCK, &locked) == 0) facts.locked_bytes = as_number(locked.rlim_cur);
  std::error_code none;
  for (const auto& card : std::filesystem::directory_iterator("/sys/class/infiniband", none))
    facts.has_rdma = facts.has_rdma || !card.path().empty();
  return facts;
}

std::int64_t open_files_needed(int ranks) {
  return static_cast<std::int64_t>(data::RecentFiles::kMost) + kOwnFiles + 2 * std::int64_t{ranks};
}

Outcome judge_open_files(const Reports<LimitFacts>& reports) {
  Outcome outcome{.check = "open-files"};
  add_missing(outcome, reports.missing, "log in to that host and look what its processes wait for");
  const std::int64_t needed = open_files_needed(static_cast<int>(reports.answered.size() + reports.missing.size()));
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const auto& [place, facts] : reports.answered) {
    if (facts.open_files == kNone) continue;
    least = std::min(least, facts.open_files);
    if (facts.open_files >= needed) continue;
    const bool may_raise = facts.open_files_hard == kNone || facts.open_files_hard >= needed;
    outcome.add({.ranks = {place.rank},
                 .level = Level::problem,
                 .what = fmt::format("may open {} files, and a training may need {}", facts.open_files, needed),
                 .remedy = may_raise ? fmt::format("ulimit -n {} in the shell or job script that starts the ranks",
                                                   std::max<std::int64_t>(4096, needed))
                                     : fmt::format("the hard limit is {}: raise nofile in /etc/security/limits.conf, "
                                                   "LimitNOFILE of the batch system's service, or --ulimit nofile of "
                                                   "the container",
                                                   facts.open_files_hard)});
  }
  outcome.summary = least == std::numeric_limits<std::int64_t>::max()
                        ? "unlimited"
                        : fmt::format("{} on every rank or more, {} needed", least, needed);
  return outcome;
}

Outcome judge_locked_memory(const Reports<LimitFacts>& reports) {
  Outcome outcome{.check = "locked-memory"};
  bool rdma = false;
  std::int64_t least = kNone;
  for (const auto& [place, facts] : reports.answered) {
    rdma = rdma || facts.has_rdma;
    if (facts.locked_bytes == kNone) continue;
    least = least == kNone ? facts.locked_bytes : std::min(least, facts.locked_bytes);
    if (!facts.has_rdma || facts.locked_bytes >= kLockedBytes) continue;
    outcome.add({.ranks = {place.rank},
                 .level = Level::warning,
                 .what = fmt::format("may lock {} of memory, and the InfiniBand or RoCE cards of {} want their buffers "
                                     "locked",
                                     human_bytes(static_cast<double>(facts.locked_bytes)), place.host),
                 .remedy = "ulimit -l unlimited: memlock in /etc/security/limits.conf, LimitMEMLOCK of the batch "
                           "system's service, or --ulimit memlock=-1 of the container"});
  }
  outcome.summary = fmt::format("{}{}", least == kNone ? limit_text(kNone) : human_bytes(static_cast<double>(least)),
                                rdma ? "" : "; no RDMA cards, which alone want it");
  return outcome;
}

}  // namespace lockstep::apps::doctor
