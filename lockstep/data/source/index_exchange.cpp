#include "lockstep/data/source/index_exchange.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/json/json.h"

namespace lockstep::inline v0::data {
namespace {

using nlohmann::json;

// The first byte of the result that a member sends. The category of an error follows.
constexpr char kWorked = '+';
constexpr char kFailed = '-';

/// Gathers in pieces: MPI limits the bytes of all members together to 2^31 - 1.
std::vector<std::string> gather(const IndexExchange& exchange, const std::string& own) {
  const std::size_t piece = (std::size_t{1} << 30) / static_cast<std::size_t>(exchange.members);
  std::vector<std::string> all(static_cast<std::size_t>(exchange.members));
  bool is_more = true;
  for (std::size_t at = 0; is_more; at += piece) {
    const auto parts = exchange.all_gather(own.substr(std::min(at, own.size()), piece));
    is_more = false;
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i] += parts[i];
      is_more = is_more || parts[i].size() == piece;
    }
  }
  return all;
}

template <typename T>
json packed_numbers(const std::vector<T>& numbers) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(numbers.data());
  return json::binary({bytes, bytes + numbers.size() * sizeof(T)});
}

template <typename T>
std::vector<T> unpacked_numbers(const json& packed) {
  const auto& bytes = packed.get_binary();
  std::vector<T> numbers(bytes.size() / sizeof(T));
  if (!numbers.empty()) std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(T));
  return numbers;
}

/// The distances between offsets, which fit in 32 bits: a record has less than 2^31 bytes.
json pack_offsets(const RecordOffsets& offsets) {
  std::vector<std::uint32_t> steps;
  steps.reserve(offsets.size());
  for (std::size_t i = 1; i < offsets.size(); ++i)
    steps.push_back(static_cast<std::uint32_t>(offsets[i] - offsets[i - 1]));
  return packed_numbers(steps);
}

RecordOffsets unpack_offsets(const json& packed) {
  const auto steps = unpacked_numbers<std::uint32_t>(packed);
  RecordOffsets offsets;
  offsets.reserve(steps.size() + 1);
  for (const std::uint32_t step : steps) offsets.push_back(offsets.back() + step);
  return offsets;
}

json pack(const ScannedFile& file) {
  json packed = {{"number", file.number},
                 {"compression", file.compression},
                 {"size", file.size},
                 {"is_loaded", file.is_loaded},
                 {"offsets", pack_offsets(file.index.offsets)}};
  if (const auto& labels = file.index.labels)
    packed["labels"] = {labels->feature, labels->lowest, labels->highest};
  if (const auto& damage = file.damage)
    packed["damage"] = {damage->location.file, damage->location.record, damage->location.offset,
                        damage->kind, damage->bytes_left_out};
  return packed;
}

ScannedFile unpack(const json& packed) {
  ScannedFile file{packed.at("number"), packed.at("compression").get<Compression>(),
                   packed.at("size"), packed.at("is_loaded"),
                   RecordIndex{unpack_offsets(packed.at("offsets")), {}}};
  if (const auto labels = packed.find("labels"); labels != packed.end())
    file.index.labels = LabelRange{labels->at(0), labels->at(1), labels->at(2)};
  if (const auto damage = packed.find("damage"); damage != packed.end())
    file.damage =
        DamagedFile{{damage->at(0), damage->at(1), damage->at(2)}, damage->at(3), damage->at(4)};
  return file;
}

[[noreturn]] void fail_other_data(std::size_t member) {
  throw Error(ErrorCategory::input, "data", "expected the same data set on all ranks",
              fmt::format("rank {} opens another one", member));
}

constexpr std::size_t kArrayAlignment = 64;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kArrayAlignment - 1) / kArrayAlignment * kArrayAlignment;
}

/// Copies the arrays into `memory`, and returns its description for other members; empty if no
/// memory can be shared.
std::string pack_shared(const NodeData& data, SharedSegment& memory) {
  std::vector<std::uint64_t> sizes;
  std::size_t total = 0;
  for (const auto& array : data.arrays) {
    sizes.push_back(array.size());
    total += aligned(array.size());
  }
  try {
    memory = SharedSegment::create(total);
  } catch (const Error&) {
    return {};
  }
  std::byte* at = memory.data();
  for (const auto& array : data.arrays) {
    std::ranges::copy(array, at);
    at += aligned(array.size());
  }
  const json description = json::binary({data.description.begin(), data.description.end()});
  return pack_json({{"handle", packed_numbers(std::vector<SharedSegment::Handle>{memory.handle()})},
                    {"sizes", sizes},
                    {"description", description}});
}

SharedSegment::Handle unpack_handle(const std::string& shared) {
  return unpacked_numbers<SharedSegment::Handle>(unpack_json(shared).at("handle")).at(0);
}

NodeData unpack_shared(const std::string& shared, const SharedSegment& memory) {
  const json packed = unpack_json(shared);
  const auto& description = packed.at("description").get_binary();
  NodeData data{{description.begin(), description.end()}, {}};
  const std::byte* at = memory.data();
  for (const std::size_t size : packed.at("sizes")) {
    data.arrays.emplace_back(at, size);
    at += aligned(size);
  }
  return data;
}

/// A hash of the data of one node, 16 characters.
std::string hash_of(const NodeData& data) {
  std::uint64_t hash = XXH3_64bits(data.description.data(), data.description.size());
  for (const std::span<const std::byte> array : data.arrays)
    hash = XXH3_64bits_withSeed(array.data(), array.size(), hash);
  return fmt::format("{:016x}", hash);
}

/// Removes the hashes from the results of the first member of each node. Throws Error (data) unless
/// they are equal.
void compare_nodes(std::vector<std::string>& results, const std::string& kind) {
  constexpr std::size_t kHash = 16;
  const std::string first = results.front().substr(0, kHash);
  for (std::size_t member = 0; member < results.size(); ++member) {
    if (results[member].empty()) continue;  // not the first of its node
    if (!results[member].starts_with(first))
      throw Error(ErrorCategory::data, "data",
                  fmt::format("expected the same {} on all nodes", kind),
                  fmt::format("rank {} read other contents than rank 0", member));
    results[member].erase(0, kHash);
  }
}

}  // namespace

bool reads_file(const IndexExchange& exchange, std::size_t file) {
  return file % static_cast<std::size_t>(exchange.members) ==
         static_cast<std::size_t>(exchange.member);
}

std::vector<std::string> gather_work(const IndexExchange& exchange,
                                     const std::function<std::string()>& work) {
  if (exchange.members == 1) return {work()};
  std::string own;
  try {
    own = kWorked + work();
  } catch (const Error& error) {
    own = {kFailed, static_cast<char>(error.category())};
    own += error.message().pack();
  }
  std::vector<std::string> results = gather(exchange, own);
  for (std::string& result : results) {
    if (result.empty() || (result.front() != kWorked && result.front() != kFailed))
      fail_other_data(static_cast<std::size_t>(&result - results.data()));
    if (result.front() == kFailed)
      throw Error(static_cast<ErrorCategory>(result[1]), ErrorMessage::unpack(result.substr(2)));
    result.erase(0, 1);
  }
  return results;
}

std::vector<std::size_t> members_of_node(const IndexExchange& exchange, const std::string& kind) {
  if (exchange.members == 1) return {0};
  std::vector<std::size_t> members;
  const auto all =
      gather_work(exchange, [&] { return fmt::format("{}\n{}", kind, exchange.node); });
  for (std::size_t member = 0; member < all.size(); ++member) {
    if (!all[member].starts_with(kind + '\n')) fail_other_data(member);
    if (all[member] == all[static_cast<std::size_t>(exchange.member)]) members.push_back(member);
  }
  return members;
}

void read_on_node(const IndexExchange& exchange, const std::string& kind,
                  const std::function<NodeData()>& read,
                  const std::function<void(const NodeData& data, SharedSegment memory)>& use) {
  const std::vector<std::size_t> node = members_of_node(exchange, kind);
  const bool is_first = node.front() == static_cast<std::size_t>(exchange.member);
  const bool has_others = node.size() < static_cast<std::size_t>(exchange.members);
  SharedSegment memory;
  auto results = gather_work(exchange, [&]() -> std::string {
    if (!is_first) return {};
    const NodeData data = read();
    const std::string hash = has_others ? hash_of(data) : "";
    return node.size() == 1 ? hash : hash + pack_shared(data, memory);
  });
  if (has_others) compare_nodes(results, kind);
  // Collective because the first member's memory must exist until the others have mapped it.
  gather_work(exchange, [&]() -> std::string {
    const std::string& shared = results[node.front()];
    bool is_shared = false;
    if (!shared.empty()) try {
        if (!is_first) memory = SharedSegment::open(unpack_handle(shared));
        const NodeData data = unpack_shared(shared, memory);
        use(data, std::move(memory));
        is_shared = true;
      } catch (const Error&) {  // as between containers
      }
    if (!is_shared && !is_first) read();
    return {};
  });
}

std::string pack_scan(const std::vector<std::uint64_t>& identities,
                      const std::vector<ScannedFile>& scanned) {
  json packed = {{"identities", packed_numbers(identities)}, {"files", json::array()}};
  for (const ScannedFile& file : scanned) packed["files"].push_back(pack(file));
  return pack_json(packed);
}

std::vector<ScannedFile> unpack_scans(const std::vector<std::string>& packed,
                                      const std::vector<std::filesystem::path>& files) {
  std::vector<ScannedFile> scanned(files.size());
  std::vector<std::uint64_t> first;
  for (std::size_t member = 0; member < packed.size(); ++member) {
    const json scan = unpack_json(packed[member]);
    const auto identities = unpacked_numbers<std::uint64_t>(scan.at("identities"));
    if (member == 0) first = identities;
    if (identities.size() != first.size())
      throw Error(
          ErrorCategory::data, "data", "expected the same files on all ranks",
          fmt::format("rank 0 has {}; rank {} has {}", first.size(), member, identities.size()));
    const auto other = std::ranges::mismatch(first, identities).in1 - first.begin();
    if (other < std::ssize(first))
      throw Error(ErrorCategory::data, files[static_cast<std::size_t>(other)].string(),
                  "expected a file of the same name and size on all ranks",
                  fmt::format("rank {} has another one than rank 0", member));
    for (const json& one : scan.at("files")) {
      ScannedFile file = unpack(one);
      scanned.at(file.number) = std::move(file);
    }
  }
  return scanned;
}

}  // namespace lockstep::inline v0::data
