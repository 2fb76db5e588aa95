// Caching of records.
#pragma once

#include <atomic>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <vector>

#include "lockstep/data/source/record_store.h"
#include "lockstep/data/source/wrapped_source.h"

namespace lockstep::data {

/// Caches each record when it is first read, as in epoch 0 of seed 0, for any pass. Images are cached as pixels,
/// everything else as floats. If several threads need an uncached record at the same time, each makes it, and one
/// stores it.
class CachedSource final : public WrappedSource {
 public:
  /// Caches in memory. Throws Error (input) if the records need more than `available` bytes.
  CachedSource(std::shared_ptr<const RecordSource> source, std::int64_t available);
  /// Caches in `file` (FileStore). Throws Error (data) if it is a cache of other records, as determined from its header
  /// and its first and last record.
  CachedSource(std::shared_ptr<const RecordSource> source, const std::filesystem::path& file);

  bool has_encoded_images() const override { return false; }
  std::int64_t size() const override { return source().size(); }
  void read(std::int64_t record_id, Sample& sample) const override;

 private:
  enum class State : std::uint8_t { missing, claimed, kept };

  /// Size of a cached record: targets, label, then features or pixels, rounded up to a multiple of 4.
  std::size_t record_bytes() const;
  std::vector<std::byte> make(std::int64_t record_id) const;
  void place(std::span<const std::byte> record, Sample& sample) const;
  void check_that_it_is_up_to_date(const std::filesystem::path& file) const;

  std::unique_ptr<RecordStore> store_;
  std::unique_ptr<std::atomic<State>[]> states_;  // null if all records are cached
};

}  // namespace lockstep::data
