#include "allreduce/watch/words.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::allreduce {
namespace {

constexpr std::size_t kShortestRun = 4;

std::string step_of(const ActivityState& state) {
  return state.step < 0 ? "before the first step" : fmt::format("at step {}", state.step);
}

}  // namespace

std::string list_of(std::span<const int> numbers) {
  std::string list;
  for (std::size_t begin = 0; begin < numbers.size();) {
    std::size_t end = begin + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    if (end - begin < kShortestRun) end = begin + 1;
    if (!list.empty()) list += ',';
    list += std::to_string(numbers[begin]);
    if (end - begin >= kShortestRun) list += fmt::format("-{}", numbers[end - 1]);
    begin = end;
  }
  return list;
}

Words::Words(std::span<const RankView> ranks, std::span<const std::string> buckets)
    : ranks_(ranks),
      buckets_(buckets),
      several_replicas_(std::ranges::any_of(ranks, [](const RankView& rank) { return rank.replicas.size() > 1; })) {}

std::string Words::rank(int rank) const {
  return fmt::format("rank {}, host {}", rank, ranks_[static_cast<std::size_t>(rank)].host);
}

std::string Words::replica(const ReplicaPlace& place) const {
  if (!several_replicas_) return rank(place.rank);
  return fmt::format("replica {} ({})", place.replica, rank(place.rank));
}

std::string Words::replicas(std::span<const ReplicaPlace> places) const {
  std::vector<int> numbers;
  for (const ReplicaPlace& place : places) numbers.push_back(several_replicas_ ? place.replica : place.rank);
  return fmt::format("{}{} {}", several_replicas_ ? "replica" : "rank", numbers.size() == 1 ? "" : "s",
                     list_of(numbers));
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

std::string Words::whereabouts(const ActivityState& state) const {
  if (state.in_collective()) return fmt::format("{}, in {}", step_of(state), collective(state.operation, state.bucket));
  const std::string next = next_bucket(state);
  return fmt::format("{}, in {}{}", step_of(state), to_string(state.phase), next.empty() ? "" : ", before " + next);
}

std::vector<std::string> Words::who_left() const {
  std::vector<std::string> clauses;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    const RankView::Link link = ranks_[r].link;
    if (link != RankView::Link::left && link != RankView::Link::failed && !ranks_[r].waits_for_end()) continue;
    const char* error = link == RankView::Link::failed ? " after an error" : "";
    clauses.push_back(fmt::format("{}, has left{}", rank(static_cast<int>(r)), error));
  }
  return clauses;
}

}  // namespace lockstep::allreduce
