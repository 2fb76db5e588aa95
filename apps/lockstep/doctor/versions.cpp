#include "apps/lockstep/doctor/versions.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "apps/lockstep/version_command.h"

namespace lockstep::apps::doctor {
namespace {

/// What may differ between hosts of one job: it costs speed, or the last bit.
bool may_differ(std::string_view name) {
  constexpr std::array<std::string_view, 4> kNames = {"processor", "cores", "compiler", "build"};
  return std::ranges::find(kNames, name) != kNames.end();
}

/// 13 of "13.0"; -1 of "absent".
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
  const std::string given = look_up(other.facts, name);
  if (given == expected || name == "cores") return;
  const bool harmless = may_differ(name);
  outcome.add({.ranks = {other.place.rank},
               .level = harmless ? Level::warning : Level::problem,
               .what = fmt::format("{} is {} on {}, and {} on rank {}", name, given, other.place.host, expected,
                                   first.place.rank),
               .remedy = harmless ? "give the job hosts of one kind, or expect the speed of the slowest"
                                  : "install the same packages on every host, or start the program from one folder "
                                    "that all hosts see"});
}

void compare_with_headers(Outcome& outcome, const Reported<VersionFacts>& report, const std::string& library) {
  const std::string built = look_up(report.facts, library + " built");
  const std::string loaded = look_up(report.facts, library + " loaded");
  if (major_version(built) < 0 || major_version(loaded) < 0 || major_version(built) <= major_version(loaded)) return;
  outcome.add({.ranks = {report.place.rank},
               .level = Level::problem,
               .what = fmt::format("this program was compiled for {} {}, and finds {}", library, built, loaded),
               .remedy = fmt::format("install {} {} there, or compile Lockstep on that host", library, built)});
}

}  // namespace

VersionFacts measure_versions() {
  VersionFacts facts;
  const auto versions = program_versions();
  for (const auto& [name, value] : versions.items()) {
    const std::string key = name == "version" ? "lockstep" : name;
    if (value.is_object())
      for (const auto& [when, version] : value.items())
        facts[fmt::format("{} {}", key, when)] = version.get<std::string>();
    else
      facts[key] = value.is_string() ? value.get<std::string>() : value.dump();
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
  add_missing(outcome, reports.missing, "look for a driver or a network folder that does not answer: nvidia-smi, df");
  if (reports.answered.empty()) return outcome;
  const auto& first = reports.answered.front();
  outcome.summary = fmt::format("lockstep {}, {}, oneDNN {}, CUDA {}, NCCL {}", look_up(first.facts, "lockstep"),
                                look_up(first.facts, "mpi loaded"), look_up(first.facts, "onednn loaded"),
                                look_up(first.facts, "cuda loaded"), look_up(first.facts, "nccl loaded"));
  for (const auto& report : reports.answered) {
    for (const auto& [name, value] : first.facts) compare(outcome, name, first, report);
    for (const char* library : {"onednn", "cuda", "nccl"}) compare_with_headers(outcome, report, library);
  }
  return outcome;
}

}  // namespace lockstep::apps::doctor
