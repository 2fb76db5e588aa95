#include "lockstep/allreduce/watchdog/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <set>

#include "lockstep/base/system/host.h"

namespace lockstep::inline v0::allreduce {
namespace {

using Link = RankView::Link;

constexpr std::size_t kMaxNamed = 4;  // keeps the line readable
/// Seconds after which a collective that lacks a departed rank counts as unable to complete.
constexpr double kCertainSeconds = 1;

// "a; b; c; d; and 12 more"
std::string join(const std::vector<std::string>& parts) {
  std::string text = fmt::format(
      "{}", fmt::join(parts.begin(), parts.begin() + std::min(parts.size(), kMaxNamed), "; "));
  if (parts.size() > kMaxNamed) text += fmt::format("; and {} more", parts.size() - kMaxNamed);
  return text;
}

std::vector<int> ranks_of(std::span<const ReplicaPlace> places) {
  std::vector<int> ranks;
  for (const ReplicaPlace& place : places)
    if (ranks.empty() || ranks.back() != place.rank) ranks.push_back(place.rank);
  return ranks;
}

/// The replicas of ranks that are still watched, in order; with `group`, the ranks in that group.
std::vector<ReplicaPlace> watched_replicas(std::span<const RankView> ranks,
                                           std::uint32_t group = 0) {
  std::vector<ReplicaPlace> places;
  int number = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    for (const ReplicaView& view : ranks[r].replicas) {
      if (view.group.number != group) continue;
      if (ranks[r].link == Link::connected)
        places.push_back({.rank = static_cast<int>(r), .replica = number, .view = &view});
      ++number;
    }
  }
  return places;
}

/// The groups in which ranks are watched; 0, all ranks, is the first.
std::set<std::uint32_t> groups_of(std::span<const RankView> ranks) {
  std::set<std::uint32_t> groups{0};
  for (const RankView& rank : ranks)
    for (const ReplicaView& view : rank.replicas) groups.insert(view.group.number);
  return groups;
}

/// The view of a collective in which a rank waits, of another group than `group`; or null.
const ReplicaView* wait_elsewhere(const RankView& rank, std::uint32_t group) {
  const auto found = std::ranges::find_if(rank.replicas, [&](const ReplicaView& view) {
    return view.group.number != group && view.state.in_collective();
  });
  return found == rank.replicas.end() ? nullptr : &*found;
}

/// " of ranks 0,2" for a view of a group.
std::string of_group(const ReplicaView& view) {
  if (view.group.number == 0) return "";
  const std::vector<int> members(view.group.members.begin(), view.group.members.end());
  return fmt::format(" of ranks {}", fmt::join(members, ","));
}

template <typename Keep>
std::vector<ReplicaPlace> select(std::span<const ReplicaPlace> places, Keep keep) {
  std::vector<ReplicaPlace> kept;
  std::ranges::copy_if(places, std::back_inserter(kept),
                       [&](const ReplicaPlace& place) { return keep(*place.view); });
  return kept;
}

/// `when`: time of its last report, "0.4 s before".
std::string last_known(const RankView& rank, const std::string& when, const Words& words) {
  if (rank.replicas.empty()) return "it had not reported yet";
  return fmt::format("{} it was {}", when, words.position(rank.replicas.front()));
}

std::optional<Verdict> find_gone(std::span<const RankView> ranks, const Words& words) {
  Verdict verdict{.kind = Verdict::Kind::gone};
  std::vector<std::string> parts;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r].link != Link::gone) continue;
    verdict.ranks.push_back(static_cast<int>(r));
    const std::string when = fmt::format("{:.1f} s before", ranks[r].silent_seconds);
    parts.push_back(fmt::format("{}, is gone ({}); {}", words.rank(static_cast<int>(r)),
                                ranks[r].reason, last_known(ranks[r], when, words)));
  }
  if (parts.empty()) return std::nullopt;
  verdict.text = fmt::format("[watchdog] expected every rank to stay connected; {}", join(parts));
  return verdict;
}

std::optional<Verdict> find_silent(std::span<const RankView> ranks, double timeout,
                                   const Words& words) {
  const auto is_silent_for = [](double seconds) {
    return [seconds](const RankView& rank) {
      return rank.link == Link::connected && rank.silent_seconds >= seconds;
    };
  };
  if (std::ranges::none_of(ranks, is_silent_for(timeout))) return std::nullopt;
  // The last messages of ranks of a disconnected host are within one heartbeat of each other. All
  // of them are named.
  const auto is_silent = is_silent_for(timeout / 2);
  Verdict verdict{.kind = Verdict::Kind::silent};
  std::vector<std::string> parts;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (!is_silent(ranks[r])) continue;
    verdict.ranks.push_back(static_cast<int>(r));
    parts.push_back(fmt::format(
        "{}, has not been heard from for {:.0f} s (stopped, or its host is unreachable); {}",
        words.rank(static_cast<int>(r)), ranks[r].silent_seconds,
        last_known(ranks[r], "before that", words)));
  }
  verdict.text = fmt::format("[watchdog] expected a heartbeat from every rank within {:g} s; {}",
                             timeout, join(parts));
  return verdict;
}

/// The next collective of absent replicas, which have entered `entered` collectives, as named by a
/// replica in it.
std::string awaited(std::uint64_t entered, std::span<const ReplicaPlace> in_it,
                    const ActivityState& absent, const Words& words) {
  for (const ReplicaPlace& place : in_it) {
    const ActivityState& state = place.view->state;
    if (state.entered != entered + 1) continue;
    return state.bucket < 0 ? state.operation : words.bucket(state.bucket);
  }
  if (std::ranges::all_of(in_it, [](const ReplicaPlace& place) {
        return place.view->state.entered > kCollectivesBeforeTheEnd;
      }))
    return in_it.front().view->state.operation;
  const std::string next = words.next_bucket(absent);
  return next.empty() ? "the next collective" : next;
}

std::string describe_absent(const ReplicaPlace& place, double seconds, const std::string& next,
                            const Words& words) {
  const ActivityState& state = place.view->state;
  const std::string step =
      state.step < 0 ? "before the first step" : fmt::format("step {}", state.step);
  return fmt::format("{}, {}, waiting before {} for {:.0f} s in {}", words.replica(place), step,
                     next, seconds, to_string(state.phase));
}

/// Replicas that have been in a collective for long, and those that have not entered it.
struct Wait {
  double seconds = 0;                // the longest
  std::vector<ReplicaPlace> behind;  // empty: no replica waits
};

// A rank that waits in a collective of another group is not behind: it depends on others, too.
Wait longest_wait(std::span<const RankView> ranks, std::span<const ReplicaPlace> all,
                  double timeout) {
  Wait wait;
  std::uint64_t furthest = 0;
  for (const ReplicaPlace& place : all) {
    const ReplicaView& view = *place.view;
    if (!view.state.in_collective() || view.collective_seconds < timeout) continue;
    furthest = std::max(furthest, view.state.entered);
    wait.seconds = std::max(wait.seconds, view.collective_seconds);
  }
  std::ranges::copy_if(all, std::back_inserter(wait.behind), [&](const ReplicaPlace& place) {
    return !place.view->state.in_collective() && place.view->state.entered < furthest &&
           wait_elsewhere(ranks[place.rank], place.view->group.number) == nullptr;
  });
  return wait;
}

/// "[watchdog] expected progress within 120 s; ABSENT; ABSENT; ranks 0,1 are in it" for those of
/// `behind` that are furthest behind, which `named` receives. `age`: the duration to report.
std::string describe_wait(std::span<const ReplicaPlace> all, std::span<const ReplicaPlace> behind,
                          double ReplicaView::*age, double timeout, const Words& words,
                          std::vector<ReplicaPlace>& named) {
  const std::uint64_t last = std::ranges::min_element(behind, {}, [](const auto& place) {
                               return place.view->state.entered;
                             })->view->state.entered;
  named = select(behind, [&](const ReplicaView& view) { return view.state.entered == last; });
  const auto in_it = select(all, [&](const ReplicaView& view) {
    return view.state.in_collective() && view.state.entered > last;
  });
  const std::string next =
      awaited(last, in_it, named.front().view->state, words) + of_group(*named.front().view);
  std::vector<std::string> parts;
  for (const ReplicaPlace& place : named)
    parts.push_back(describe_absent(place, place.view->*age, next, words));
  return fmt::format("[watchdog] expected progress within {:g} s; {}; {} in it", timeout,
                     join(parts), words.replicas_are(in_it));
}

/// What a program can do if other ranks wait for its own code.
constexpr std::string_view kHowToWork =
    "call tick() (in C lockstep_still_at_work()), or set a longer stall_timeout, which "
    "LOCKSTEP_STALL_TIMEOUT=SECONDS in the environment overrides";

std::optional<Verdict> find_absent(std::span<const RankView> ranks,
                                   std::span<const ReplicaPlace> all, double timeout,
                                   const Words& words) {
  const Wait wait = longest_wait(ranks, all, timeout);
  // Other absent replicas may depend on one that still makes progress (a thread of the same rank),
  // so none is named yet.
  if (wait.behind.empty() || !std::ranges::all_of(wait.behind, [&](const auto& place) {
        return place.view->still_seconds >= timeout;
      }))
    return std::nullopt;
  std::vector<ReplicaPlace> absent;
  std::string text =
      describe_wait(all, wait.behind, &ReplicaView::still_seconds, timeout, words, absent);
  if (const auto left = words.departed(); !left.empty()) text += "; " + join(left);
  if (is_outside_training(absent.front().view->state.phase))
    text += fmt::format(
        "; the awaited process neither computes, reads nor writes: if it waits on purpose, {}",
        kHowToWork);
  return Verdict{.kind = Verdict::Kind::absent, .ranks = ranks_of(absent), .text = std::move(text)};
}

/// "all ranks are at step 3, in x", or "ranks 0,1 at step 3, in x; rank 2 at step 3, in y".
std::string positions(std::span<const ReplicaPlace> all, const Words& words) {
  std::vector<std::string> places;
  std::vector<std::vector<ReplicaPlace>> groups;
  for (const ReplicaPlace& place : all) {
    const std::string where = words.position(*place.view);
    const auto found = static_cast<std::size_t>(std::ranges::find(places, where) - places.begin());
    if (found == places.size()) {
      places.push_back(where);
      groups.emplace_back();
    }
    groups[found].push_back(place);
  }
  if (groups.size() == 1)
    return fmt::format("{} {}", words.replicas_are(groups.front()), places.front());
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < groups.size(); ++i)
    parts.push_back(fmt::format("{} {}", words.replicas(groups[i]), places[i]));
  return join(parts);
}

/// Members of a group that have ended it, for which another waits in it.
std::optional<Verdict> find_ended(std::span<const RankView> ranks,
                                  std::span<const ReplicaPlace> group, double timeout,
                                  const Words& words) {
  const auto waiting = select(group, [&](const ReplicaView& view) {
    return view.state.in_collective() && view.collective_seconds >= timeout;
  });
  if (waiting.empty()) return std::nullopt;
  const ReplicaView& view = *waiting.front().view;
  Verdict verdict{.kind = Verdict::Kind::left};
  std::vector<std::string> parts;
  for (const std::int32_t member : view.group.members) {
    if (member < 0 || static_cast<std::size_t>(member) >= ranks.size() ||
        std::ranges::find(group, member, &ReplicaPlace::rank) != group.end())
      continue;
    verdict.ranks.push_back(member);
    parts.push_back(fmt::format("{}, has ended its part of the group", words.rank(member)));
  }
  if (parts.empty()) return std::nullopt;
  verdict.text =
      fmt::format("[watchdog] expected all members of the group{} to make the same calls; {}; {}",
                  of_group(view), join(parts), positions(waiting, words));
  return verdict;
}

std::optional<Verdict> find_standstill(std::vector<ReplicaPlace> all,
                                       std::span<const RankView> ranks, double timeout,
                                       const Words& words) {
  bool in_groups = false;
  for (ReplicaPlace& place : all) {
    const ReplicaView* elsewhere = wait_elsewhere(ranks[place.rank], 0);
    if (elsewhere == nullptr) continue;
    place.view = elsewhere;
    in_groups = true;
  }
  if (all.empty() || !std::ranges::all_of(all, [&](const auto& place) {
        return place.view->still_seconds >= timeout;
      }))
    return std::nullopt;
  const bool any_waits =
      std::ranges::any_of(all, [](const auto& place) { return place.view->state.in_collective(); });
  const bool any_is_idle = std::ranges::any_of(all, [](const auto& place) {
    return place.view->state.phase == Phase::idle || place.view->state.phase == Phase::starting;
  });
  if (!any_waits && any_is_idle) return std::nullopt;

  const double still = std::ranges::min_element(all, {}, [](const auto& place) {
                         return place.view->still_seconds;
                       })->view->still_seconds;
  const auto left = words.departed();
  std::string text = fmt::format("[watchdog] expected progress within {:g} s; ", timeout);
  if (!left.empty()) text += fmt::format("{}; ", join(left));
  text += fmt::format("no{} rank has made progress for {:.0f} s: {}", left.empty() ? "" : " other",
                      still, positions(all, words));
  if (any_waits && left.empty())
    text += in_groups
                ? "; ranks of several groups may wait for each other: each makes the calls of "
                  "its groups in the same order"
                : "; no rank is missing, so a connection between them may be broken";
  return Verdict{.kind = any_waits ? Verdict::Kind::stuck : Verdict::Kind::still,
                 .ranks = {},
                 .text = std::move(text)};
}

}  // namespace

bool RankView::waits_for_end() const {
  const auto waits = [](const ReplicaView& view) {
    return view.state.phase == Phase::ending && view.state.in_collective();
  };
  return link == Link::connected && !replicas.empty() && std::ranges::all_of(replicas, waits);
}

std::optional<Verdict> judge_liveness(std::span<const RankView> ranks, double stall_timeout,
                                      std::span<const std::string> buckets) {
  const Words words(ranks, buckets);
  if (auto gone = find_gone(ranks, words)) return gone;
  return find_silent(ranks, stall_timeout, words);
}

std::optional<Verdict> judge_departures(std::span<const RankView> ranks,
                                        std::span<const std::string> buckets) {
  // The ranks that have left may have completed these collectives before the others.
  std::uint64_t completed = kCollectivesBeforeTheEnd;
  Verdict verdict{.kind = Verdict::Kind::left};
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (!ranks[r].waits_for_end()) continue;
    const std::uint64_t entered = ranks[r].replicas.front().state.entered;
    if (entered <= kCollectivesBeforeTheEnd) continue;  // the end of a training, not of the session
    verdict.ranks.push_back(static_cast<int>(r));
    completed = std::min(completed, entered - 1 - kCollectivesBeforeTheEnd);
  }
  const auto waiting = select(watched_replicas(ranks), [&](const ReplicaView& view) {
    return view.state.in_collective() && view.state.entered > completed &&
           view.state.entered <= kCollectivesBeforeTheEnd && view.still_seconds >= kCertainSeconds;
  });
  if (verdict.ranks.empty() || waiting.empty()) return std::nullopt;
  const Words words(ranks, buckets);
  verdict.text =
      fmt::format("[watchdog] expected every rank to make the same calls to its end; {}; {}",
                  join(words.departed()), positions(waiting, words));
  return verdict;
}

namespace {

std::optional<LongWait> find_long_wait(std::span<const RankView> ranks,
                                       std::span<const ReplicaPlace> all, double stall_timeout,
                                       std::span<const std::string> buckets) {
  const Wait wait = longest_wait(ranks, all, stall_timeout);
  const auto at_work = select(wait.behind, [&](const ReplicaView& view) {
    return view.unreported_seconds >= stall_timeout && view.still_seconds < stall_timeout &&
           is_outside_training(view.state.phase);
  });
  if (at_work.empty()) return std::nullopt;
  const Words words(ranks, buckets);
  std::vector<ReplicaPlace> named;
  const std::string text =
      describe_wait(all, at_work, &ReplicaView::unreported_seconds, stall_timeout, words, named);
  return LongWait{
      .seconds = std::min(wait.seconds, named.front().view->unreported_seconds),
      .text = fmt::format("{}; the job continues, because the awaited process computes, reads "
                          "or writes: in such work {}",
                          text, kHowToWork)};
}

}  // namespace

std::optional<LongWait> find_long_wait(std::span<const RankView> ranks, double stall_timeout,
                                       std::span<const std::string> buckets) {
  for (const std::uint32_t group : groups_of(ranks))
    if (auto wait = find_long_wait(ranks, watched_replicas(ranks, group), stall_timeout, buckets))
      return wait;
  return std::nullopt;
}

std::optional<Verdict> judge_progress(std::span<const RankView> ranks, double stall_timeout,
                                      std::span<const std::string> buckets) {
  const Words words(ranks, buckets);
  for (const std::uint32_t group : groups_of(ranks)) {
    const auto members = watched_replicas(ranks, group);
    if (group != 0)
      if (auto ended = find_ended(ranks, members, stall_timeout, words)) return ended;
    if (auto absent = find_absent(ranks, members, stall_timeout, words)) return absent;
  }
  const auto all = watched_replicas(ranks);
  // Ranks that wait for the end are not stuck: if others wait for them, they have ended too early.
  std::vector<ReplicaPlace> at_work = all;
  std::erase_if(at_work,
                [&](const ReplicaPlace& place) { return ranks[place.rank].waits_for_end(); });
  return find_standstill(at_work.empty() ? all : at_work, ranks, stall_timeout, words);
}

namespace {

constexpr std::size_t kShortestRun = 4;

std::string step_of(const ActivityState& state) {
  return state.step < 0 ? "before the first step" : fmt::format("at step {}", state.step);
}

}  // namespace

std::string list_of(std::span<const int> numbers) { return number_list(numbers, kShortestRun); }

Words::Words(std::span<const RankView> ranks, std::span<const std::string> buckets)
    : ranks_(ranks),
      buckets_(buckets),
      several_replicas_(std::ranges::any_of(ranks, [](const RankView& rank) {
        return std::ranges::count_if(rank.replicas, [](const ReplicaView& view) {
                 return view.group.number == 0;
               }) > 1;
      })) {}

std::string Words::rank(int rank) const {
  return fmt::format("rank {}, host {}", rank, ranks_[rank].host);
}

std::string Words::replica(const ReplicaPlace& place) const {
  if (!several_replicas_) return rank(place.rank);
  return fmt::format("replica {} ({})", place.replica, rank(place.rank));
}

std::string Words::replicas(std::span<const ReplicaPlace> places) const {
  std::vector<int> numbers;
  for (const ReplicaPlace& place : places)
    numbers.push_back(several_replicas_ ? place.replica : place.rank);
  return fmt::format("{}{} {}", several_replicas_ ? "replica" : "rank",
                     numbers.size() == 1 ? "" : "s", list_of(numbers));
}

std::string Words::replicas_are(std::span<const ReplicaPlace> places) const {
  return replicas(places) + (places.size() == 1 ? " is" : " are");
}

std::string Words::bucket(int number) const {
  const auto index = static_cast<std::size_t>(number);
  if (index >= buckets_.size() || buckets_[index].empty()) return fmt::format("bucket {}", number);
  return fmt::format("bucket {} (layers {})", number, buckets_[index]);
}

std::string Words::collective(const std::string& operation, int bucket_number) const {
  return bucket_number < 0 ? operation : fmt::format("{} of {}", operation, bucket(bucket_number));
}

std::string Words::next_bucket(const ActivityState& state) const {
  if (buckets_.empty() || state.bucket < 0) return "";
  return bucket((state.bucket + 1) % static_cast<int>(buckets_.size()));
}

std::string Words::position(const ReplicaView& view) const {
  const ActivityState& state = view.state;
  if (state.in_collective())
    return fmt::format("{}, in {}{}", step_of(state), collective(state.operation, state.bucket),
                       of_group(view));
  const std::string next = next_bucket(state);
  return fmt::format("{}, in {}{}", step_of(state), to_string(state.phase),
                     next.empty() ? "" : ", before " + next);
}

std::vector<std::string> Words::departed() const {
  std::vector<std::string> clauses;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    const RankView::Link link = ranks_[r].link;
    if (link != RankView::Link::left && link != RankView::Link::failed &&
        !ranks_[r].waits_for_end())
      continue;
    const char* error = link == RankView::Link::failed ? " after an error" : "";
    clauses.push_back(fmt::format("{}, has left{}", rank(static_cast<int>(r)), error));
  }
  return clauses;
}

}  // namespace lockstep::inline v0::allreduce
