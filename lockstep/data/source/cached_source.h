// Caching of records, in memory or in a file.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/file/atomic_file.h"
#include "lockstep/base/file/input_file.h"
#include "lockstep/data/sample/record_source.h"
#include "lockstep/data/sample/sample.h"
#include "lockstep/data/source/wrapped_source.h"

namespace lockstep::inline v0::data {

/// Records of equal size. Each is stored once by put() and can then be read by any thread, but
/// not before put() has returned.
class RecordStore {
 public:
  virtual ~RecordStore() = default;
  /// Whether all records are available from the start; put() is then never called.
  virtual bool is_complete() const { return false; }
  /// Throws Error if the record cannot be stored.
  virtual void put(std::int64_t record_id, std::span<const std::byte> record) = 0;
  /// A view into the store's memory, or into `scratch`. Throws Error (data) for damage.
  virtual std::span<const std::byte> get(std::int64_t record_id,
                                         std::vector<std::byte>& scratch) const = 0;
};

/// A cache in one block of memory, which the system allocates page by page as records are stored.
class MemoryStore final : public RecordStore {
 public:
  /// Space for `records` records of `record_bytes`. Throws Error (input) if they need more than
  /// `available` bytes.
  MemoryStore(std::int64_t records, std::size_t record_bytes, std::int64_t available);

  void put(std::int64_t record_id, std::span<const std::byte> record) override;
  std::span<const std::byte> get(std::int64_t record_id,
                                 std::vector<std::byte>& scratch) const override;

 private:
  std::size_t record_bytes_;
  std::unique_ptr<std::byte[]> bytes_;
};

/// A cache file: a header that identifies the records, then the records, each with its CRC-32C.
/// Numbers are little-endian.
///
///   "LSCACHE\n"   8 bytes
///   version       uint32: 1
///   text size     uint32, bytes
///   records       uint64
///   record size   uint64, bytes
///   text          identifies the records
///   CRC           uint32, of all preceding bytes
///
/// Until all records are stored, they are in a temporary file in the same directory, which is
/// removed with its store. Then the file is renamed to its final name, unless another process was
/// first: each process has its own temporary file with the same contents.
class FileStore final : public RecordStore {
 public:
  /// `text` identifies the records. An existing file is opened. Throws Error (data) if it contains
  /// other records, or cannot be read or created; Error (input) if the disk does not have enough
  /// space for a new one.
  FileStore(std::filesystem::path path, const std::string& text, std::int64_t records,
            std::size_t record_bytes);

  bool is_complete() const override { return !writer_; }
  void put(std::int64_t record_id, std::span<const std::byte> record) override;
  std::span<const std::byte> get(std::int64_t record_id,
                                 std::vector<std::byte>& scratch) const override;

 private:
  void check(const std::string& header) const;
  void create(const std::string& header);
  std::uint64_t offset_of(std::int64_t record_id) const;

  std::filesystem::path path_;
  std::int64_t records_;
  std::size_t record_bytes_;
  std::size_t header_bytes_;
  std::optional<AtomicFile> writer_;  // for a new file
  std::optional<InputFile> reader_;   // always set after construction
  std::atomic<std::int64_t> missing_ = 0;
};

/// Caches each record when it is first read, as in epoch 0 of seed 0, for any pass. Images are
/// cached as pixels, everything else as floats. If several threads need an uncached record at the
/// same time, each makes it, and one stores it.
class CachedSource final : public WrappedSource {
 public:
  /// Caches in memory. Throws Error (input) if the records need more than `available` bytes, or
  /// have tensors without a fixed size.
  CachedSource(std::shared_ptr<const RecordSource> source, std::int64_t available);
  /// Caches in `file` (FileStore). Throws Error (data) if it is a cache of other records, as
  /// determined from its header and its first and last record; Error (input) as above.
  CachedSource(std::shared_ptr<const RecordSource> source, const std::filesystem::path& file);

  void read(std::int64_t record_id, Sample& sample) const override;

 private:
  enum class State : std::uint8_t { missing, claimed, kept };

  void describe_cache(const std::string& operation);
  /// Size of a cached record: targets, the weight if there is one, then inputs, the first as pixels
  /// if the records are images.
  std::size_t record_bytes() const;
  std::vector<std::byte> make(std::int64_t record_id) const;
  void copy_to_sample(std::span<const std::byte> record, Sample& sample) const;
  void check_that_it_is_up_to_date(const std::filesystem::path& file) const;

  std::unique_ptr<RecordStore> store_;
  std::unique_ptr<std::atomic<State>[]> states_;  // null if all records are cached
};

}  // namespace lockstep::inline v0::data
