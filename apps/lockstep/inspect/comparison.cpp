#include "apps/lockstep/inspect/comparison.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "lockstep/base/printable.h"
#include "lockstep/base/text.h"

namespace lockstep::inline v0::apps {
namespace {

constexpr double kNanosecond = 1e-9;

/// "rank 1", "ranks 0, 2".
std::string ranks_text(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : ", ", ranks[i]);
  return text;
}

/// "bucket 3 (conv1 .. conv2)", "all_gather 71".
std::string name_of(const RecordedCollective& one, const std::vector<std::string>& buckets) {
  if (one.bucket < 0) return fmt::format("{} (collective {})", one.name, one.sequence);
  const auto bucket = static_cast<std::size_t>(one.bucket);
  return fmt::format("bucket {}{}", one.bucket,
                     bucket < buckets.size() ? fmt::format(" ({})", buckets[bucket]) : "");
}

std::string name_with_step(const RecordedCollective& one, const std::vector<std::string>& buckets) {
  const std::string name = name_of(one, buckets);
  return one.step > 0 ? fmt::format("{} of step {}", name, one.step) : name;
}

struct RankState {
  int rank = 0;
  std::optional<RecordedCollective> last;
  std::string position;  // open spans of its main thread, "step > input"; may be empty
};

std::string joined(const std::vector<std::string>& spans) {
  return fmt::format("{}", fmt::join(spans, " > "));
}

/// The open spans of the thread that runs the steps.
std::string main_position(const trace::Recording& recording) {
  for (const ThreadState& state : thread_states(recording))
    if (!state.spans.empty() && (state.thread == "main" || state.thread.starts_with("replica")))
      return joined(state.spans);
  return {};
}

/// State of a rank that has not entered the collective `front`.
std::string progress_of(const RankState& rank, const RecordedCollective& front,
                        const std::vector<std::string>& buckets) {
  const std::string place = rank.position.empty() ? "" : ", and is in " + rank.position;
  if (!rank.last) return "entered none" + place;
  const RecordedCollective& last = *rank.last;
  // Omits a repeated step.
  const std::string name =
      last.step == front.step ? name_of(last, buckets) : name_with_step(last, buckets);
  if (last.has_failed) return "failed in " + name;
  if (!last.has_left) return "never left " + name;
  return fmt::format("left {} and entered none since{}", name, place);
}

/// Groups ranks with the same text, in the order of their first ranks.
class Groups {
 public:
  void add(const std::string& text, int rank) {
    for (auto& [known, ranks] : groups_)
      if (known == text) return ranks.push_back(rank);
    groups_.push_back({text, {rank}});
  }
  std::string text(std::string_view separator) const {
    std::string all;
    for (const auto& [text, ranks] : groups_)
      all += fmt::format("{}{} {}", all.empty() ? "" : separator, ranks_text(ranks), text);
    return all;
  }

 private:
  std::vector<std::pair<std::string, std::vector<int>>> groups_;
};

std::string compare_collectives(const std::vector<RankState>& ranks,
                                const std::vector<std::string>& buckets) {
  const auto sequence = [](const RankState& rank) { return rank.last ? rank.last->sequence : 0; };
  const RankState& front = *std::ranges::max_element(ranks, {}, sequence);
  if (!front.last) return "no rank has entered a collective";
  const std::string last = name_with_step(*front.last, buckets);
  std::vector<int> in_front;
  Groups behind;
  Groups states;
  for (const RankState& rank : ranks) {
    if (sequence(rank) == sequence(front)) {
      in_front.push_back(rank.rank);
      states.add(rank.last->has_failed ? "failed in it"
                 : rank.last->has_left ? "left it"
                                       : "did not leave it",
                 rank.rank);
    } else {
      behind.add(progress_of(rank, *front.last, buckets), rank.rank);
    }
  }
  const std::string behind_text = behind.text("; ");
  if (behind_text.empty()) {
    const std::string who = ranks.size() == 1 ? ranks_text(in_front) : "all these ranks";
    return fmt::format("{} entered {}, and no later collective: {}", who, last, states.text("; "));
  }
  return fmt::format("{} entered {}; {}", ranks_text(in_front), last, behind_text);
}

std::string time_text(double seconds_since_1970) {
  const auto seconds = static_cast<std::time_t>(seconds_since_1970);
  std::tm parts = {};
  if (::gmtime_r(&seconds, &parts) == nullptr) return "an unknown time";
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02} UTC", parts.tm_year + 1900,
                     parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

std::string describe(const trace::Recording& recording) {
  std::string text = fmt::format("rank {} on {}, process {}: ", recording.rank.rank,
                                 recording.rank.host, recording.process);
  text += recording.step > 0 ? fmt::format("step {}", recording.step) : "before the first step";
  for (const ThreadState& state : thread_states(recording))
    if (!state.spans.empty() && state.spans.back() != trace::kIdleSpan)
      text +=
          fmt::format("\n  {}: {}, for {:.3g} s", state.thread, joined(state.spans), state.seconds);
  if (recording.is_cut_off) text += "\n  the recording is cut off";
  return text;
}

/// The recordings of the newest job.
struct Comparison {
  trace::RecordedRank job;
  double written = 0;          // seconds since 1970
  std::int64_t others = 0;     // number of skipped recordings of other jobs
  std::int64_t requested = 0;  // number of skipped recordings requested before the failure
  std::vector<trace::Recording> recordings;  // in the order of ranks
  std::vector<int> missing;                  // ranks without a recording
  std::vector<int> causes;      // ranks that failed themselves, if there are bystanders
  std::vector<int> bystanders;  // ranks that recorded because another one failed
  std::string reading;          // comparison of the collectives
};

Comparison compare(std::vector<trace::Recording> recordings) {
  const trace::Recording& newest =
      *std::ranges::max_element(recordings, {}, &trace::Recording::seconds_since_1970);
  Comparison found;
  found.job = newest.rank;
  found.written = newest.seconds_since_1970;
  found.others = static_cast<std::int64_t>(std::erase_if(
      recordings, [&](const trace::Recording& one) { return one.rank.job != found.job.job; }));
  // A recording on request does not show the state at a later failure.
  constexpr double kSameMoment = 5;
  const auto is_failure = [](const trace::Recording& one) {
    return one.reason != trace::kRequestReason;
  };
  if (std::ranges::any_of(recordings, is_failure))
    found.requested =
        static_cast<std::int64_t>(std::erase_if(recordings, [&](const trace::Recording& one) {
          return !is_failure(one) && one.seconds_since_1970 + kSameMoment < found.written;
        }));
  std::ranges::stable_sort(recordings, {},
                           [](const trace::Recording& one) { return one.rank.rank; });
  std::vector<RankState> ranks;
  std::set<int> present;
  for (const trace::Recording& one : recordings) {
    ranks.push_back({one.rank.rank, last_collective(one), main_position(one)});
    present.insert(one.rank.rank);
    (one.reason == trace::kBystanderReason ? found.bystanders : found.causes)
        .push_back(one.rank.rank);
  }
  if (found.bystanders.empty()) found.causes.clear();
  constexpr int kMaxListed = 1024;
  for (int rank = 0; rank < std::min(found.job.ranks, kMaxListed); ++rank)
    if (!present.contains(rank)) found.missing.push_back(rank);
  found.reading = compare_collectives(ranks, recordings.front().buckets);
  found.recordings = std::move(recordings);
  return found;
}

/// "rank 1 failed; ranks 0, 2 did not, and recorded because of that"
std::string cause_text(const Comparison& found) {
  if (found.bystanders.empty()) return {};
  const std::vector<int>& first = found.causes.empty() ? found.missing : found.causes;
  return fmt::format("{} failed{}; {} did not, and recorded because of that",
                     first.empty() ? "a rank that is not known" : ranks_text(first),
                     found.causes.empty() && !first.empty() ? " or was killed" : "",
                     ranks_text(found.bystanders));
}

nlohmann::ordered_json json_of(const RecordedCollective& one,
                               const std::vector<std::string>& buckets) {
  nlohmann::ordered_json object = {{"collective", one.sequence}, {"name", one.name}};
  if (one.bucket >= 0) object["bucket"] = one.bucket;
  if (const auto bucket = static_cast<std::size_t>(one.bucket);
      one.bucket >= 0 && bucket < buckets.size())
    object["contents"] = buckets[bucket];
  object["step"] = one.step;
  object["state"] = one.has_failed ? "failed" : one.has_left ? "left" : "entered";
  return object;
}

nlohmann::ordered_json json_of(const trace::Recording& recording, const RecordedEvent& recorded) {
  const trace::Event& event = *recorded.event;
  nlohmann::ordered_json object = {{"seconds", kNanosecond * (static_cast<double>(event.time) -
                                                              static_cast<double>(recording.time))},
                                   {"thread", *recorded.thread},
                                   {"kind", to_string(event.kind)},
                                   {"name", event.name},
                                   {"step", event.step}};
  if (event.number >= 0) object["number"] = event.number;
  if (event.sequence > 0) object["collective"] = event.sequence;
  return object;
}

nlohmann::ordered_json json_of(const trace::Recording& recording, std::int64_t events) {
  nlohmann::ordered_json object = {
      {"rank", recording.rank.rank},          {"host", recording.rank.host},
      {"process", recording.process},         {"reason", recording.reason},
      {"time", recording.seconds_since_1970}, {"step", recording.step},
      {"cut_off", recording.is_cut_off}};
  const auto last = last_collective(recording);
  object["last_collective"] =
      last ? json_of(*last, recording.buckets) : nlohmann::ordered_json(nullptr);
  object["threads"] = nlohmann::ordered_json::array();
  for (const ThreadState& state : thread_states(recording))
    object["threads"].push_back(
        {{"name", state.thread}, {"spans", state.spans}, {"seconds", state.seconds}});
  if (events == 0) return object;
  object["events"] = nlohmann::ordered_json::array();
  for (const RecordedEvent& event : last_events(recording, events))
    object["events"].push_back(json_of(recording, event));
  return object;
}

}  // namespace

std::optional<RecordedCollective> last_collective(const trace::Recording& recording) {
  std::optional<RecordedCollective> last;
  std::map<std::uint64_t, int> inside;  // replicas of the rank in each collective
  std::set<std::uint64_t> failed;
  for (const trace::ThreadEvents& thread : recording.threads)
    for (const trace::Event& event : thread.events) {
      if (event.sequence == 0) continue;
      if (event.kind == trace::EventKind::mark) failed.insert(event.sequence);
      if (event.kind == trace::EventKind::end) --inside[event.sequence];
      if (event.kind != trace::EventKind::begin) continue;
      ++inside[event.sequence];
      if (!last || event.sequence > last->sequence)
        last = {.sequence = event.sequence,
                .name = event.name,
                .bucket = event.number,
                .step = event.step};
    }
  if (!last) return last;
  last->has_failed = failed.contains(last->sequence);
  last->has_left = inside[last->sequence] <= 0 && !last->has_failed;
  return last;
}

std::vector<ThreadState> thread_states(const trace::Recording& recording) {
  struct Open {
    trace::Event event;
    std::optional<trace::Event> lap;
  };
  const auto text_of_event = [](const trace::Event& event) {
    return event.number < 0 ? std::string(event.name)
                            : fmt::format("{} {}", event.name, event.number);
  };
  std::vector<ThreadState> states;
  for (const trace::ThreadEvents& thread : recording.threads) {
    std::vector<Open> open;
    for (const trace::Event& event : thread.events) {
      if (event.kind == trace::EventKind::begin) {
        open.push_back({event, {}});
      } else if (event.kind == trace::EventKind::end) {
        // A ring may begin within a span.
        const auto begun = std::find_if(open.rbegin(), open.rend(), [&](const Open& one) {
          return std::string_view(one.event.name) == event.name;
        });
        if (begun != open.rend()) open.erase(std::prev(begun.base()), open.end());
      } else if (event.kind == trace::EventKind::lap && !open.empty()) {
        open.back().lap.reset();
        if (*event.name != '\0') open.back().lap = event;
      }
    }
    ThreadState state{.thread = thread.thread, .spans = {}};
    std::int64_t since = thread.events.empty() ? recording.time : thread.events.back().time;
    for (const auto& [event, lap] : open) {
      state.spans.push_back(text_of_event(event));
      since = event.time;
      if (!lap) continue;
      state.spans.push_back(text_of_event(*lap));
      since = lap->time;
    }
    state.seconds =
        kNanosecond * (static_cast<double>(recording.time) - static_cast<double>(since));
    states.push_back(std::move(state));
  }
  std::stable_partition(states.begin(), states.end(),
                        [](const ThreadState& one) { return !one.spans.empty(); });
  return states;
}

std::vector<RecordedEvent> last_events(const trace::Recording& recording, std::int64_t count) {
  std::vector<RecordedEvent> events;
  for (const trace::ThreadEvents& thread : recording.threads)
    for (const trace::Event& event : thread.events) events.push_back({&event, &thread.thread});
  std::ranges::stable_sort(events, {}, [](const RecordedEvent& one) { return one.event->time; });
  const auto left_out = std::max<std::int64_t>(0, std::ssize(events) - count);
  events.erase(events.begin(), events.begin() + left_out);
  return events;
}

std::vector<std::string> compare_recordings(std::vector<trace::Recording> recordings) {
  const Comparison found = compare(std::move(recordings));
  std::vector<std::string> lines;
  lines.push_back(fmt::format("job {}, {} of {} ranks, recorded until {}", found.job.job,
                              found.recordings.size(), found.job.ranks, time_text(found.written)));
  if (found.others > 0)
    lines.push_back(
        fmt::format("skipped {} of other jobs", counted(found.others, "older recording")));
  if (found.requested > 0)
    lines.push_back(fmt::format("skipped {} requested before the failure",
                                counted(found.requested, "recording")));
  Groups reasons;
  for (const trace::Recording& one : found.recordings)
    reasons.add("recorded because of: " + one.reason, one.rank.rank);
  lines.push_back(reasons.text("\n"));
  if (!found.missing.empty())
    lines.push_back(fmt::format(
        "{} left no recording here: killed, or in {} of another host", ranks_text(found.missing),
        printable((trace::temporary_recordings() / found.job.job).native())));
  if (std::string cause = cause_text(found); !cause.empty()) lines.push_back(std::move(cause));
  lines.push_back(found.reading);
  for (const trace::Recording& one : found.recordings) lines.push_back(describe(one));
  return lines;
}

nlohmann::ordered_json comparison_json(std::vector<trace::Recording> recordings,
                                       std::int64_t events) {
  const Comparison found = compare(std::move(recordings));
  nlohmann::ordered_json reasons = nlohmann::ordered_json::array();
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (const trace::Recording& one : found.recordings) {
    const auto known = std::ranges::find_if(
        reasons, [&](const auto& other) { return other["reason"] == one.reason; });
    if (known != reasons.end())
      (*known)["ranks"].push_back(one.rank.rank);
    else
      reasons.push_back({{"reason", one.reason}, {"ranks", {one.rank.rank}}});
    ranks.push_back(json_of(one, events));
  }
  nlohmann::ordered_json reading = nlohmann::ordered_json::array();
  if (std::string cause = cause_text(found); !cause.empty()) reading.push_back(std::move(cause));
  reading.push_back(found.reading);
  return {{"job", found.job.job},  {"size", found.job.ranks},
          {"time", found.written}, {"older_recordings", found.others + found.requested},
          {"reasons", reasons},    {"missing", found.missing},
          {"reading", reading},    {"ranks", ranks}};
}

}  // namespace lockstep::inline v0::apps
