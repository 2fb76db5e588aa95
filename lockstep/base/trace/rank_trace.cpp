#include "lockstep/base/trace/rank_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/json/json.h"
#include "lockstep/base/json/json_member.h"

namespace lockstep::inline v0::trace {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ClockOffset, time, offset, uncertainty)

namespace {

struct PackedEvent {
  std::int64_t time;
  std::int64_t step;
  std::uint64_t sequence;
  std::uint32_t name;
  std::int32_t number;
  EventKind kind;
};

[[noreturn]] void refuse_pack(const std::string& actual) {
  throw Error(ErrorCategory::communication, "trace", "expected the trace of a rank", actual);
}

/// Stack of open slices; the innermost ends first.
class OpenSlices {
 public:
  explicit OpenSlices(std::vector<Slice>& slices) : slices_(slices) {}

  void begin(const Slice& slice, bool is_lap) {
    open_.push_back({slices_.size(), is_lap});
    slices_.push_back(slice);
  }
  void end_lap(std::int64_t time) {
    if (!open_.empty() && open_.back().is_lap) end_last(time);
  }
  /// Ends the innermost span of this name and all slices within it. Does nothing if the span began
  /// before the trace.
  void end(std::string_view name, std::int64_t time) {
    const auto found = std::find_if(open_.rbegin(), open_.rend(), [&](const Open& one) {
      return !one.is_lap && slices_[one.slice].name == name;
    });
    if (found == open_.rend()) return;
    const auto left = static_cast<std::size_t>(open_.rend() - found - 1);
    while (open_.size() > left) end_last(time);
  }
  void end_all(std::int64_t time) {
    while (!open_.empty()) end_last(time);
  }

 private:
  struct Open {
    std::size_t slice;
    bool is_lap;
  };
  void end_last(std::int64_t time) {
    slices_[open_.back().slice].end = time;
    open_.pop_back();
  }

  std::vector<Slice>& slices_;
  std::vector<Open> open_;
};

/// When a host was in a collective, in nanoseconds on the common clock.
struct Visit {
  std::size_t host;
  std::int64_t last_begin;  // last begin of its replicas
  std::int64_t first_end;   // first end of its replicas
};

/// Visits of each all-reduce by at least two hosts.
std::vector<std::vector<Visit>> visits_of(std::span<const RankTrace> ranks,
                                          std::span<const std::size_t> host_of_rank) {
  std::map<std::pair<std::int64_t, std::uint64_t>, std::map<std::size_t, Visit>> by_collective;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    for (const ThreadEvents& thread : ranks[rank].threads)
      for (const Slice& slice : slices_of(ranks[rank], thread)) {
        if (slice.sequence == 0 || std::string_view(slice.name) != "all_reduce") continue;
        const std::size_t host = host_of_rank[rank];
        const auto [visit, is_new] = by_collective[{slice.step, slice.sequence}].try_emplace(
            host, Visit{host, slice.begin, slice.end});
        visit->second.last_begin = std::max(visit->second.last_begin, slice.begin);
        visit->second.first_end = std::min(visit->second.first_end, slice.end);
      }
  std::vector<std::vector<Visit>> all;
  for (const auto& [key, visits] : by_collective) {
    if (visits.size() < 2) continue;
    std::vector<Visit>& one = all.emplace_back();
    for (const auto& [host, visit] : visits) one.push_back(visit);
  }
  return all;
}

}  // namespace

std::int64_t RankTrace::on_common_clock(std::int64_t time) const {
  if (clock.empty()) return time;
  const ClockOffset& first = clock.front();
  const ClockOffset& last = clock.back();
  if (last.time == first.time) return time - first.offset;
  const double share =
      static_cast<double>(time - first.time) / static_cast<double>(last.time - first.time);
  return time - first.offset -
         static_cast<std::int64_t>(share * static_cast<double>(last.offset - first.offset));
}

std::int64_t RankTrace::uncertainty() const {
  std::int64_t largest = 0;
  for (const ClockOffset& one : clock) largest = std::max(largest, one.uncertainty);
  return largest;
}

std::uint64_t RankTrace::lost() const {
  std::uint64_t sum = 0;
  for (const ThreadEvents& thread : threads) sum += thread.lost;
  return sum;
}

std::vector<Slice> slices_of(const RankTrace& rank, const ThreadEvents& thread) {
  std::vector<Slice> slices;
  OpenSlices open(slices);
  std::int64_t now = 0;
  for (const Event& event : thread.events) {
    now = rank.on_common_clock(event.time);
    const Slice slice{.begin = now,
                      .end = now,
                      .name = event.name,
                      .number = event.number,
                      .step = event.step,
                      .sequence = event.sequence};
    switch (event.kind) {
      case EventKind::begin:
        open.begin(slice, false);
        break;
      case EventKind::end:
        open.end(event.name, now);
        break;
      case EventKind::lap:
        open.end_lap(now);
        if (*event.name != '\0') open.begin(slice, true);
        break;
      case EventKind::mark:
        slices.push_back(slice);
        break;
    }
  }
  open.end_all(now);
  return slices;
}

void order_collectives(std::span<RankTrace> ranks) {
  std::vector<std::size_t> host_of_rank;
  std::vector<const RankTrace*> first_of_host;
  for (const RankTrace& rank : ranks) {
    const auto same = std::ranges::find_if(first_of_host, [&](const RankTrace* other) {
      return rank.clock.front().offset == other->clock.front().offset &&
             rank.uncertainty() == other->uncertainty();
    });
    host_of_rank.push_back(static_cast<std::size_t>(same - first_of_host.begin()));
    if (same == first_of_host.end()) first_of_host.push_back(&rank);
  }
  std::vector<std::int64_t> limit;
  for (const RankTrace* const host : first_of_host) limit.push_back(host->uncertainty());
  std::vector<std::int64_t> moved(limit.size(), 0);  // later on the common clock
  const std::vector<std::vector<Visit>> collectives = visits_of(ranks, host_of_rank);
  const auto move = [&](std::size_t host, std::int64_t by) {
    const std::int64_t before = moved[host];
    moved[host] = std::clamp(before + by, -limit[host], limit[host]);
    return moved[host] != before;
  };
  // Each pass moves the two hosts that contradict each other most, in proportion to their
  // uncertainties. The true offsets contradict nothing, so the passes converge.
  constexpr int kMaxPasses = 100;
  bool has_moved = true;
  for (int pass = 0; pass < kMaxPasses && has_moved; ++pass) {
    has_moved = false;
    for (const std::vector<Visit>& visits : collectives) {
      const Visit& last = *std::ranges::max_element(
          visits, {}, [&](const Visit& one) { return one.last_begin + moved[one.host]; });
      const Visit& first = *std::ranges::min_element(
          visits, {}, [&](const Visit& one) { return one.first_end + moved[one.host]; });
      const std::int64_t excess =
          last.last_begin + moved[last.host] - first.first_end - moved[first.host];
      const std::int64_t both = limit[last.host] + limit[first.host];
      if (excess <= 0 || both == 0) continue;
      const std::int64_t by_first = excess * limit[first.host] / both;
      has_moved = move(first.host, by_first + 1) || has_moved;
      has_moved = move(last.host, by_first - excess) || has_moved;
    }
  }
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    for (ClockOffset& clock : ranks[rank].clock) {
      const std::int64_t by = moved[host_of_rank[rank]];
      clock.offset -= by;
      clock.uncertainty += by < 0 ? -by : by;
    }
}

std::string pack(const RankTrace& rank) {
  std::map<const char*, std::uint32_t> number_of_name;
  nlohmann::json names = nlohmann::json::array();
  nlohmann::json threads = nlohmann::json::array();
  std::string events;
  for (const ThreadEvents& thread : rank.threads) {
    threads.push_back({thread.thread, thread.recorded, thread.lost, thread.events.size()});
    for (const Event& event : thread.events) {
      const auto [name, is_new] =
          number_of_name.try_emplace(event.name, static_cast<std::uint32_t>(number_of_name.size()));
      if (is_new) names.push_back(event.name);
      PackedEvent packed;
      std::memset(&packed, 0, sizeof packed);  // the padding too
      packed.time = event.time;
      packed.step = event.step;
      packed.sequence = event.sequence;
      packed.name = name->second;
      packed.number = event.number;
      packed.kind = event.kind;
      events.append(reinterpret_cast<const char*>(&packed), sizeof packed);
    }
  }
  const nlohmann::json header = {{"rank", rank.rank},   {"host", rank.host},
                                 {"clock", rank.clock}, {"process", rank.process},
                                 {"names", names},      {"threads", threads}};
  return dump_json(header) + "\n" + events;
}

RankTrace unpack(const std::string& packed) try {
  const std::size_t end = packed.find('\n');
  if (end == std::string::npos) refuse_pack("got something else");
  const nlohmann::json header =
      parse_json(std::string_view(packed).substr(0, end), ErrorCategory::communication, "trace");
  RankTrace rank{.rank = json_member<int>(header, "rank"),
                 .host = json_member<std::string>(header, "host"),
                 .process = json_member<std::int64_t>(header, "process"),
                 .clock = json_member<std::vector<ClockOffset>>(header, "clock"),
                 .threads = {}};
  std::vector<const char*> names;
  for (const std::string& name : json_member<std::vector<std::string>>(header, "names"))
    names.push_back(intern(name));
  std::size_t at = end + 1;
  for (const auto& line : json_member<nlohmann::json::array_t>(header, "threads")) {
    ThreadEvents& thread = rank.threads.emplace_back();
    thread = {.thread = line.at(0), .recorded = line.at(1), .lost = line.at(2), .events = {}};
    const std::size_t count = line.at(3);
    if ((packed.size() - at) / sizeof(PackedEvent) < count) refuse_pack("got fewer events");
    for (std::size_t i = 0; i < count; ++i, at += sizeof(PackedEvent)) {
      PackedEvent event;
      std::memcpy(&event, packed.data() + at, sizeof event);
      if (event.name >= names.size()) refuse_pack("got an unknown name");
      thread.events.push_back({.time = event.time,
                               .name = names[event.name],
                               .kind = event.kind,
                               .number = event.number,
                               .step = event.step,
                               .sequence = event.sequence});
    }
  }
  return rank;
} catch (const std::invalid_argument& reason) {
  refuse_pack(reason.what());
} catch (const nlohmann::json::exception&) {
  refuse_pack("got threads that are described in another way");
}

}  // namespace lockstep::inline v0::trace
