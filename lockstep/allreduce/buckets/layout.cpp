#include "lockstep/allreduce/buckets/layout.h"

#include <fmt/format.h>

#include <xxhash.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::allreduce {
namespace {

using Bytes = std::vector<std::byte>;
using Layout = std::vector<LayoutEntry>;

void append(Bytes& to, const void* data, std::size_t size) {
  const auto* begin = static_cast<const std::byte*>(data);
  to.insert(to.end(), begin, begin + size);
}

// Format of each entry: elements, length of the name, name.
Bytes pack(std::span<const LayoutEntry> layout) {
  Bytes packed;
  for (const LayoutEntry& entry : layout) {
    const std::uint64_t length = entry.name.size();
    append(packed, &entry.elements, sizeof(entry.elements));
    append(packed, &length, sizeof(length));
    append(packed, entry.name.data(), entry.name.size());
  }
  return packed;
}

Layout unpack(const Bytes& packed) {
  Layout layout;
  std::size_t at = 0;
  const auto read = [&](void* to, std::size_t size) {
    LOCKSTEP_CHECK_OP(at + size, <=, packed.size());
    std::memcpy(to, packed.data() + at, size);
    at += size;
  };
  while (at < packed.size()) {
    std::uint64_t length = 0;
    LayoutEntry entry;
    read(&entry.elements, sizeof(entry.elements));
    read(&length, sizeof(length));
    entry.name.resize(length);
    read(entry.name.data(), length);
    layout.push_back(std::move(entry));
  }
  return layout;
}

// Describes how parameter `index` differs between replicas 0 and `replica`; nullopt if it does not.
std::optional<std::string> difference_at(std::size_t index, const Layout& first,
                                         const Layout& other, std::size_t replica) {
  if (index >= first.size() && index >= other.size()) return std::nullopt;
  if (index >= first.size())
    return fmt::format("{} is on replica {} and not on replica 0", other[index].name, replica);
  if (index >= other.size())
    return fmt::format("{} is on replica 0 and not on replica {}", first[index].name, replica);
  const LayoutEntry& a = first[index];
  const LayoutEntry& b = other[index];
  if (a.name != b.name)
    return fmt::format("parameter {} is {} on replica 0 and {} on replica {}", index, a.name,
                       b.name, replica);
  if (a.elements != b.elements)
    return fmt::format("{} has {} elements on replica 0 and {} on replica {}", a.name, a.elements,
                       b.elements, replica);
  return std::nullopt;
}

std::string first_difference(const std::vector<Layout>& layouts) {
  std::size_t longest = 0;
  for (const Layout& layout : layouts) longest = std::max(longest, layout.size());
  for (std::size_t index = 0; index < longest; ++index)
    for (std::size_t replica = 1; replica < layouts.size(); ++replica)
      if (const auto difference = difference_at(index, layouts[0], layouts[replica], replica))
        return *difference;
  LOCKSTEP_CHECK(false && "layouts of different hashes are equal");
  return "";
}

}  // namespace

void check_layout(const Communicator& group, std::span<const LayoutEntry> layout) {
  const Bytes packed = pack(layout);
  const std::uint64_t hash = XXH3_64bits(packed.data(), packed.size());
  const std::vector<Bytes> hashes = group.all_gather(std::as_bytes(std::span(&hash, 1)));
  if (std::ranges::all_of(hashes, [&](const Bytes& other) { return other == hashes.front(); }))
    return;
  std::vector<Layout> layouts;
  for (const Bytes& other : group.all_gather(packed)) layouts.push_back(unpack(other));
  throw Error(ErrorCategory::communication, "all_reduce",
              "expected the same parameters on all replicas", first_difference(layouts));
}

}  // namespace lockstep::inline v0::allreduce
