#include "lockstep/base/trace/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "lockstep/base/text.h"

namespace lockstep::trace {
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
};

/// How a rank that is behind relates to its last collective.
std::string position_of(const RecordedCollective& last, const RecordedCollective& front,
                        const std::vector<std::string>& buckets) {
  // The step is said once if it is the same.
  const std::string name =
      last.step == front.step ? name_of(last, buckets) : name_with_step(last, buckets);
  if (last.has_failed) return "failed in " + name;
  if (!last.has_left) return "never left " + name;
  return fmt::format("left {} and entered none since", name);
}

/// Ranks of the same text, in the order of their first ranks.
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
    } else if (!rank.last) {
      behind.add("entered none", rank.rank);
    } else {
      behind.add(position_of(*rank.last, *front.last, buckets), rank.rank);
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

std::string describe(const Recording& recording) {
  std::string text = fmt::format("rank {} on {}, process {}: ", recording.rank.rank,
                                 recording.rank.host, recording.process);
  text += recording.step > 0 ? fmt::format("step {}", recording.step) : "before the first step";
  for (const ThreadState& state : thread_states(recording)) {
    if (state.spans.empty()) continue;
    text += fmt::format("\n  {}: ", state.thread);
    for (std::size_t i = 0; i < state.spans.size(); ++i)
      text += (i == 0 ? "" : " > ") + state.spans[i];
    text += fmt::format(", for {:.3g} s", state.seconds);
  }
  if (recording.is_cut_off) text += "\n  the recording is cut off";
  return text;
}

}  // namespace

std::optional<RecordedCollective> last_collective(const Recording& recording) {
  std::optional<RecordedCollective> last;
  std::map<std::uint64_t, int> inside;  // replicas of the rank in each collective
  std::set<std::uint64_t> failed;
  for (const ThreadEvents& thread : recording.threads)
    for (const Event& event : thread.events) {
      if (event.sequence == 0) continue;
      if (event.kind == EventKind::mark) failed.insert(event.sequence);
      if (event.kind == EventKind::end) --inside[event.sequence];
      if (event.kind != EventKind::begin) continue;
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

std::vector<ThreadState> thread_states(const Recording& recording) {
  struct Open {
    Event event;
    std::optional<Event> lap;
  };
  const auto text_of_event = [](const Event& event) {
    return event.number < 0 ? std::string(event.name)
                            : fmt::format("{} {}", event.name, event.number);
  };
  std::vector<ThreadState> states;
  for (const ThreadEvents& thread : recording.threads) {
    std::vector<Open> open;
    for (const Event& event : thread.events) {
      if (event.kind == EventKind::begin) {
        open.push_back({event, {}});
      } else if (event.kind == EventKind::end) {
        // A ring may begin within a span.
        const auto begun = std::find_if(open.rbegin(), open.rend(), [&](const Open& one) {
          return std::string_view(one.event.name) == event.name;
        });
        if (begun != open.rend()) open.erase(std::prev(begun.base()), open.end());
      } else if (event.kind == EventKind::lap && !open.empty()) {
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
  std::ranges::stable_partition(states, [](const ThreadState& one) { return !one.spans.empty(); });
  return states;
}

std::vector<std::string> compare_recordings(std::vector<Recording> recordings) {
  const Recording& newest =
      *std::ranges::max_element(recordings, {}, &Recording::seconds_since_1970);
  const RecordedRank job = newest.rank;
  const double written = newest.seconds_since_1970;
  const auto others = static_cast<std::int64_t>(
      std::erase_if(recordings, [&](const Recording& one) { return one.rank.job != job.job; }));
  std::ranges::stable_sort(recordings, {}, [](const Recording& one) { return one.rank.rank; });

  std::vector<std::string> lines;
  lines.push_back(fmt::format("job {}, {} of {} ranks, recorded until {}", job.job,
                              recordings.size(), job.ranks, time_text(written)));
  if (others > 0)
    lines.push_back(fmt::format("{} of other jobs left out", counted(others, "older recording")));
  Groups reasons;
  std::vector<RankState> ranks;
  std::set<int> present;
  for (const Recording& one : recordings) {
    reasons.add("recorded because of: " + one.reason, one.rank.rank);
    ranks.push_back({one.rank.rank, last_collective(one)});
    present.insert(one.rank.rank);
  }
  lines.push_back(reasons.text("\n"));
  std::vector<int> missing;
  constexpr int kMaxListed = 1024;
  for (int rank = 0; rank < std::min(job.ranks, kMaxListed); ++rank)
    if (!present.contains(rank)) missing.push_back(rank);
  if (!missing.empty())
    lines.push_back(fmt::format("{} left no recording here: killed, or in {} of another host",
                                ranks_text(missing), (temporary_recordings() / job.job).string()));
  lines.push_back(compare_collectives(ranks, recordings.front().buckets));
  for (const Recording& one : recordings) lines.push_back(describe(one));
  return lines;
}

}  // namespace lockstep::trace
