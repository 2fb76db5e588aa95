#include "strategy/replica_agreement.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "device/error.h"

namespace lockstep::strategy {
namespace {

using Hashes = std::vector<std::uint64_t>;

struct FlatArray {
  std::string prefix;  // of a tensor's name
  device::HostView view;
};

std::vector<FlatArray> flat_arrays(Replica& replica) {
  std::vector<FlatArray> arrays;
  arrays.push_back({"", replica.host_view(replica.model().parameters())});
  for (const std::string& slot : replica.optimizer().slot_names())
    arrays.push_back({fmt::format("{} of ", slot), replica.host_view(replica.optimizer().slot(slot))});
  return arrays;
}

// One for each tensor: parameter by parameter, and of each the arrays in turn.
Hashes hash_tensors(Replica& replica) {
  std::vector<FlatArray> arrays = flat_arrays(replica);
  Hashes hashes;
  for (const model::ParameterInfo& entry : replica.model().parameter_table().entries())
    for (FlatArray& array : arrays)
      hashes.push_back(XXH3_64bits(array.view.values().data() + entry.offset, entry.count * sizeof(float)));
  return hashes;
}

std::string name_of_tensor(Replica& replica, std::size_t index) {
  const std::vector<FlatArray> arrays = flat_arrays(replica);
  const auto& entries = replica.model().parameter_table().entries();
  return arrays[index % arrays.size()].prefix + entries[index / arrays.size()].name;
}

// Of every replica, in replica order.
std::vector<Hashes> gather(const allreduce::Communicator& group, std::span<const std::uint64_t> mine) {
  std::vector<Hashes> all;
  for (const auto& bytes : group.all_gather(std::as_bytes(mine))) {
    LOCKSTEP_CHECK_OP(bytes.size(), ==, mine.size_bytes());
    Hashes& theirs = all.emplace_back(mine.size());
    std::memcpy(theirs.data(), bytes.data(), bytes.size());
  }
  return all;
}

std::vector<int> odd_ones(const std::vector<Hashes>& all, std::size_t tensor) {
  const auto votes = [&](std::uint64_t value) {
    return std::ranges::count_if(all, [&](const Hashes& hashes) { return hashes[tensor] == value; });
  };
  // Of equally frequent values, that of the lowest replica.
  std::uint64_t usual = all.front()[tensor];
  for (const Hashes& hashes : all)
    if (votes(hashes[tensor]) > votes(usual)) usual = hashes[tensor];
  std::vector<int> odd;
  for (std::size_t replica = 0; replica < all.size(); ++replica)
    if (all[replica][tensor] != usual) odd.push_back(static_cast<int>(replica));
  return odd;
}

}  // namespace

std::optional<Disagreement> find_disagreement(Replica& replica) {
  const Hashes mine = hash_tensors(replica);
  const std::uint64_t together = XXH3_64bits(mine.data(), mine.size() * sizeof(std::uint64_t));
  const std::vector<Hashes> totals = gather(replica.group(), std::span(&together, 1));
  if (std::ranges::all_of(totals, [&](const Hashes& total) { return total == totals.front(); })) return std::nullopt;
  // In pieces: the hashes of many tensors of many replicas are more than one message or one host can hold.
  constexpr std::size_t kTensorsAtOnce = 1024;
  for (std::size_t begin = 0; begin < mine.size(); begin += kTensorsAtOnce) {
    const auto piece = std::span(mine).subspan(begin, std::min(kTensorsAtOnce, mine.size() - begin));
    const std::vector<Hashes> all = gather(replica.group(), piece);
    for (std::size_t tensor = 0; tensor < piece.size(); ++tensor)
      if (std::vector<int> odd = odd_ones(all, tensor); !odd.empty())
        return Disagreement{name_of_tensor(replica, begin + tensor), std::move(odd)};
  }
  LOCKSTEP_CHECK(false && "replicas of different hashes hold the same tensors");
  return std::nullopt;
}

}  // namespace lockstep::strategy
