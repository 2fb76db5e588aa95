#include "lockstep/train/evaluation/record_account.h"

#include <fmt/format.h>

#include <xxhash.h>

#include <array>
#include <cstring>

#include "lockstep/data/order/batch_plan.h"
#include "lockstep/data/sample/record_source.h"

namespace lockstep::inline v0::train {
namespace {

std::uint64_t hash_of(std::int64_t record_id) { return XXH3_64bits(&record_id, sizeof(record_id)); }

/// Hash sum over all ids of `range`. Billions of ids take seconds, so it reports progress to the
/// watchdog.
std::uint64_t sum_of(const data::Range& range, allreduce::Activity* activity) {
  constexpr std::int64_t kIdsOfATick = std::int64_t{1} << 20;
  std::uint64_t sum = 0;
  for (std::int64_t id = range.begin; id < range.end; ++id) {
    sum += hash_of(id);
    if (id % kIdsOfATick == 0 && activity != nullptr) activity->tick();
  }
  return sum;
}

}  // namespace

// Format per record: its id, and the length and the text of the problem.
void pack_bad_records(const std::vector<data::BadRecord>& records, std::vector<std::byte>& bytes) {
  const auto put = [&](const void* data, std::size_t size) {
    const auto* const begin = static_cast<const std::byte*>(data);
    bytes.insert(bytes.end(), begin, begin + size);
  };
  for (const data::BadRecord& record : records) {
    const std::uint64_t length = record.problem.size();
    put(&record.record_id, sizeof(record.record_id));
    put(&length, sizeof(length));
    put(record.problem.data(), record.problem.size());
  }
}

void unpack_bad_records(std::span<const std::byte> bytes,
                        std::map<std::int64_t, std::string>& records) {
  const auto read = [&](void* into, std::size_t size) {
    LOCKSTEP_CHECK_OP(bytes.size(), >=, size);
    std::memcpy(into, bytes.data(), size);
    bytes = bytes.subspan(size);
  };
  while (!bytes.empty()) {
    std::int64_t id = 0;
    std::uint64_t length = 0;
    read(&id, sizeof(id));
    read(&length, sizeof(length));
    std::string problem(length, '\0');
    read(problem.data(), length);
    records.emplace(id, std::move(problem));
  }
}

void RecordAccount::add(const std::vector<data::Batch>& parts) {
  for (const data::Batch& part : parts) {
    count_ += part.record_ids.size();
    for (const std::int64_t id : part.record_ids) sum_ += hash_of(id);
  }
}

bool RecordAccount::is_complete(const allreduce::Communicator& ranks, std::int64_t records,
                                std::int64_t times) const {
  const std::array<std::uint64_t, 3> mine = {
      count_, sum_, sum_of(data::split(records, ranks.size(), ranks.rank()), ranks.activity())};
  std::array<std::uint64_t, 3> all = {};
  for (const auto& bytes : ranks.all_gather(std::as_bytes(std::span(mine)))) {
    std::array<std::uint64_t, 3> one = {};
    std::memcpy(one.data(), bytes.data(), sizeof(one));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] += one[i];
  }
  const auto [count, sum, expected] = all;
  return count == static_cast<std::uint64_t>(records * times) &&
         sum == expected * static_cast<std::uint64_t>(times);
}

std::vector<BadFile> gather_bad_records(const allreduce::Communicator& ranks,
                                        const data::RecordSource& source,
                                        const std::vector<data::BadRecord>& mine,
                                        std::int64_t limit) {
  std::vector<std::byte> packed;
  pack_bad_records(mine, packed);
  std::map<std::int64_t, std::string> all;
  for (const auto& bytes : ranks.all_gather(std::span<const std::byte>(packed)))
    unpack_bad_records(bytes, all);
  if (static_cast<std::int64_t>(all.size()) > limit)
    data::throw_too_many_bad(limit, all.rbegin()->second);
  std::vector<BadFile> bad;
  if (all.empty()) return bad;
  std::int64_t end = 0;
  auto record = all.begin();
  const auto append_until = [&](const std::string& file) {
    if (record == all.end() || record->first >= end) return;
    bad.push_back({file, 0, record->second});
    for (; record != all.end() && record->first < end; ++record) ++bad.back().records;
  };
  for (const data::StoredFile& file : source.info().files) {
    end += file.records;
    append_until(file.name);
  }
  end = source.size();
  append_until("");
  return bad;
}

}  // namespace lockstep::inline v0::train
