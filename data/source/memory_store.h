// A cache in memory.
#pragma once

#include <memory>

#include "data/source/record_store.h"

namespace lockstep::data {

/// One block of memory, which the system gives page by page as records are put.
class MemoryStore final : public RecordStore {
 public:
  /// For `records` of `record_bytes`. Throws Error (input) where they need more than `available` bytes.
  MemoryStore(std::int64_t records, std::size_t record_bytes, std::int64_t available);

  void put(std::int64_t record_id, std::span<const std::byte> record) override;
  std::span<const std::byte> get(std::int64_t record_id, std::vector<std::byte>& scratch) const override;

 private:
  std::size_t record_bytes_;
  std::unique_ptr<std::byte[]> bytes_;
};

}  // namespace lockstep::data
