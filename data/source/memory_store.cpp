#include "data/source/memory_store.h"

#include <fmt/format.h>

#include <algorithm>

#include "device/error.h"

namespace lockstep::data {

MemoryStore::MemoryStore(std::int64_t records, std::size_t record_bytes, std::int64_t available)
    : record_bytes_(record_bytes) {
  const double needed = static_cast<double>(records) * static_cast<double>(record_bytes);
  if (needed > static_cast<double>(available))
    throw Error(
        ErrorCategory::input, "cache",
        fmt::format("needed {:.1f} MiB of memory for {} records of {} bytes", needed / 0x1p20, records, record_bytes),
        fmt::format("{:.1f} MiB are available: use cache(file)", static_cast<double>(available) / 0x1p20));
  bytes_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(records) * record_bytes);
}

void MemoryStore::put(std::int64_t record_id, std::span<const std::byte> record) {
  LOCKSTEP_CHECK_OP(record.size(), ==, record_bytes_);
  std::ranges::copy(record, bytes_.get() + static_cast<std::size_t>(record_id) * record_bytes_);
}

std::span<const std::byte> MemoryStore::get(std::int64_t record_id, std::vector<std::byte>&) const {
  return {bytes_.get() + static_cast<std::size_t>(record_id) * record_bytes_, record_bytes_};
}

}  // namespace lockstep::data
