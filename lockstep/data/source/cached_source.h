// Records that are made once and then kept.
#pragma once

#include <atomic>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <vector>

#include "lockstep/data/source/record_store.h"
#include "lockstep/data/source/wrapped_source.h"

namespace lockstep::data {

/// Whoever reads a record first makes and keeps it, as in epoch 0 of seed 0, whatever the pass it is read for. Images
/// are kept as pixels, all else as floats. Where several threads need one record first at the same moment, each makes
/// it, and one keeps it.
class CachedSource final : public WrappedSource {
 public:
  /// Keeps them in memory. Throws Error (input) where they need more than `available` bytes.
  CachedSource(std::shared_ptr<const RecordSource> source, std::int64_t available);
  /// Keeps them in `file` (FileStore). Throws Error (data) where it is a cache of something else, as far as its header
  /// and its first and last record can tell.
  CachedSource(std::shared_ptr<const RecordSource> source, const std::filesystem::path& file);

  bool has_encoded_images() const override { return false; }
  std::int64_t size() const override { return source().size(); }
  void read(std::int64_t record_id, Sample& sample) const override;

 private:
  enum class State : std::uint8_t { missing, claimed, kept };

  /// Of a record as it is kept: targets, label, then features or pixels, up to a multiple of 4.
  std::size_t record_bytes() const;
  std::vector<std::byte> make(std::int64_t record_id) const;
  void place(std::span<const std::byte> record, Sample& sample) const;
  void check_that_it_is_up_to_date(const std::filesystem::path& file) const;

  std::unique_ptr<RecordStore> store_;
  std::unique_ptr<std::atomic<State>[]> states_;  // null where all are kept
};

}  // namespace lockstep::data
