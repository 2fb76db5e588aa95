#include "apps/lockstep/doctor/host.h"

#include <fmt/format.h>

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string_view>
#include <system_error>

#include "lockstep/allreduce/communicator.h"
#include "lockstep/allreduce/member/group_member.h"
#include "lockstep/allreduce/transport/direct_messages.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/json/json.h"
#include "lockstep/data/record/record_file.h"

namespace lockstep::inline v0::apps::doctor {
namespace {

constexpr const char* kClockCheck = "clocks";
constexpr int kCopyRounds = 10;

void send_time(allreduce::DirectMessages& messages, int rank, double time) {
  std::memcpy(messages.outgoing().data(), &time, sizeof(time));
  messages.send(rank, sizeof(time));
}

double receive_time(allreduce::DirectMessages& messages, int rank) {
  double time = 0;
  messages.receive(rank, sizeof(time));
  std::memcpy(&time, messages.incoming().data(), sizeof(time));
  return time;
}

/// Estimates the offset from the shortest of several round trips, which has the smallest possible
/// asymmetry.
ClockReading query_clock(allreduce::DirectMessages& messages, const Place& place) {
  ClockReading reading{.place = place, .seconds_uncertain = std::numeric_limits<double>::max()};
  for (int round = 0; round < kCopyRounds; ++round) {
    const double before = seconds_since_1970();
    send_time(messages, place.rank, before);
    const double there = receive_time(messages, place.rank);
    const double half_trip = (seconds_since_1970() - before) / 2;
    if (half_trip >= reading.seconds_uncertain) continue;
    reading.seconds_uncertain = half_trip;
    reading.seconds_ahead = there - (before + half_trip);
  }
  return reading;
}

void send_clock(allreduce::DirectMessages& messages) {
  for (int round = 0; round < kCopyRounds; ++round) {
    receive_time(messages, 0);
    send_time(messages, 0, seconds_since_1970());
  }
}

}  // namespace

std::vector<ClockReading> measure_clocks(Ranks& ranks) {
  if (ranks.session().nodes() == 1) return {};
  const allreduce::CollectiveScope scope(&ranks.activity(), kClockCheck);
  std::vector<ClockReading> readings;
  allreduce::DirectMessages messages(*ranks.session().ranks().impl()->transport(), sizeof(double));
  if (ranks.mine().rank == 0) {
    for (const Place& place : ranks.places()) {
      if (place.local_rank != 0 || place.rank == 0) continue;
      readings.push_back(query_clock(messages, place));
      ranks.activity().tick();
    }
  } else if (ranks.mine().local_rank == 0) {
    send_clock(messages);
  }
  return readings;
}

Outcome judge_clocks(const std::vector<ClockReading>& readings) {
  constexpr double kWarning = 1;
  constexpr double kProblem = 300;  // the tolerance of Kerberos
  Outcome outcome{.check = kClockCheck};
  double most = 0;
  for (const ClockReading& reading : readings) {
    const double certain =
        std::max(0.0, std::abs(reading.seconds_ahead) - reading.seconds_uncertain);
    most = std::max(most, std::abs(reading.seconds_ahead));
    if (certain < kWarning) continue;
    outcome.add({{reading.place.rank},
                 certain < kProblem ? Level::warning : Level::problem,
                 fmt::format("the clock of {} is {:.3g} s {} that of rank 0's host",
                             reading.place.host, std::abs(reading.seconds_ahead),
                             reading.seconds_ahead > 0 ? "ahead of" : "behind"),
                 "synchronize both clocks: timedatectl set-ntp true, or chronyc makestep"});
  }
  outcome.summary =
      readings.empty() ? "one host: one clock" : fmt::format("{:.2g} s apart at most", most);
  return outcome;
}

namespace {

constexpr std::int64_t kNone = -1;
constexpr std::int64_t kOwnFiles =
    64;  // open files of libraries, MPI and the program, in a job of one rank
constexpr std::int64_t kLockedBytes =
    1LL << 30;  // locked memory that RDMA of large gradients may require

std::int64_t as_number(rlim_t limit) {
  return limit == RLIM_INFINITY ? kNone : static_cast<std::int64_t>(limit);
}

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
  return static_cast<std::int64_t>(data::RecentFiles::kMaxOpen) + kOwnFiles +
         2 * std::int64_t{ranks};
}

Outcome judge_open_files(const Reports<LimitFacts>& reports) {
  Outcome outcome{.check = "open-files"};
  add_missing(outcome, reports.missing, kCheckTheHost);
  const std::int64_t needed =
      open_files_needed(static_cast<int>(reports.answered.size() + reports.missing.size()));
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const auto& [place, facts] : reports.answered) {
    if (facts.open_files == kNone) continue;
    least = std::min(least, facts.open_files);
    if (facts.open_files >= needed) continue;
    const bool may_raise = facts.open_files_hard == kNone || facts.open_files_hard >= needed;
    outcome.fail(
        place,
        fmt::format("may open {} files, and a training may need {}", facts.open_files, needed),
        may_raise ? fmt::format("ulimit -n {} in the shell or job script that starts the ranks",
                                std::max<std::int64_t>(4096, needed))
                  : fmt::format("the hard limit is {}: raise nofile in "
                                "/etc/security/limits.conf, LimitNOFILE of the batch "
                                "system's service, or --ulimit nofile of the container",
                                facts.open_files_hard));
  }
  outcome.summary = least == std::numeric_limits<std::int64_t>::max()
                        ? "unlimited"
                        : fmt::format("at least {} on every rank, {} required", least, needed);
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
    outcome.warn(
        place,
        fmt::format(
            "may lock {} of memory, and the InfiniBand or RoCE cards of {} require locked buffers",
            human_bytes(facts.locked_bytes), place.host),
        "ulimit -l unlimited: memlock in /etc/security/limits.conf, LimitMEMLOCK of the "
        "batch system's service, or --ulimit memlock=-1 of the container");
  }
  outcome.summary =
      fmt::format("{}{}", least == kNone ? "unlimited" : human_bytes(least),
                  rdma ? "" : "; only relevant for RDMA cards, of which there are none");
  return outcome;
}

namespace {

/// Whether this may differ between the hosts of a job, at the cost of speed or of differences in
/// the last bit.
bool may_differ(std::string_view name) {
  constexpr std::array<std::string_view, 4> kNames = {"processor", "cores", "compiler", "build"};
  return std::ranges::find(kNames, name) != kNames.end();
}

/// The major version: 13 for "13.0", -1 for "absent".
int major_version(std::string_view text) {
  int major = -1;
  std::from_chars(text.data(), text.data() + text.size(), major);
  return major;
}

std::string look_up(const VersionFacts& facts, const std::string& name) {
  const auto found = facts.find(name);
  return found == facts.end() ? "unknown" : found->second;
}

void compare(Outcome& outcome, const std::string& name, const Reported<VersionFacts>& first,
             const Reported<VersionFacts>& other) {
  const std::string expected = look_up(first.facts, name);
  const std::string found = look_up(other.facts, name);
  if (found == expected || name == "cores") return;
  const bool harmless = may_differ(name);
  outcome.add({{other.place.rank},
               harmless ? Level::warning : Level::problem,
               fmt::format("{} is {} on {}, and {} on rank {}", name, found, other.place.host,
                           expected, first.place.rank),
               harmless ? "use hosts of one kind, or expect the speed of the slowest"
                        : "install the same packages on every host, or start the program "
                          "from a shared folder"});
}

void compare_with_headers(Outcome& outcome, const Reported<VersionFacts>& report,
                          const std::string& library) {
  const std::string built = look_up(report.facts, library + " built");
  const std::string loaded = look_up(report.facts, library + " loaded");
  if (major_version(built) < 0 || major_version(loaded) < 0 ||
      major_version(built) <= major_version(loaded))
    return;
  outcome.fail(
      report.place,
      fmt::format("this program was compiled for {} {}, but loaded {}", library, built, loaded),
      fmt::format("install {} {} there, or compile Lockstep on that host", library, built));
}

}  // namespace

VersionFacts version_facts(const nlohmann::ordered_json& versions) {
  VersionFacts facts;
  for (const auto& [name, value] : versions.items()) {
    const std::string key = name == "version" ? "lockstep" : name;
    if (value.is_object())
      for (const auto& [when, version] : value.items())
        facts[fmt::format("{} {}", key, when)] = version.get<std::string>();
    else
      facts[key] = value.is_string() ? value.get<std::string>() : dump_json(value);
  }
  return facts;
}

bool is_one_program(const Reports<VersionFacts>& reports) {
  return std::ranges::all_of(reports.answered, [&](const Reported<VersionFacts>& report) {
    return look_up(report.facts, "lockstep") == look_up(reports.answered.front().facts, "lockstep");
  });
}

Outcome judge_versions(const Reports<VersionFacts>& reports) {
  Outcome outcome{.check = "versions"};
  add_missing(outcome, reports.missing,
              "check for a driver or network folder that does not respond: nvidia-smi, df");
  if (reports.answered.empty()) return outcome;
  const auto& first = reports.answered.front();
  outcome.summary =
      fmt::format("lockstep {}, {}, oneDNN {}, CUDA {}, NCCL {}", look_up(first.facts, "lockstep"),
                  look_up(first.facts, "mpi loaded"), look_up(first.facts, "onednn loaded"),
                  look_up(first.facts, "cuda loaded"), look_up(first.facts, "nccl loaded"));
  for (const auto& report : reports.answered) {
    for (const auto& [name, value] : first.facts) compare(outcome, name, first, report);
    for (const char* library : {"onednn", "cuda", "nccl"})
      compare_with_headers(outcome, report, library);
  }
  return outcome;
}

}  // namespace lockstep::inline v0::apps::doctor
