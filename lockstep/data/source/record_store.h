// Where the records of a cache are kept.
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

#include "lockstep/base/atomic_file.h"
#include "lockstep/base/input_file.h"

namespace lockstep::data {

/// Records of one size, each put once and then got by any thread. Who gets a record knows that its put() has returned.
class RecordStore {
 public:
  virtual ~RecordStore() = default;
  /// Whether all records are there from the start; none is put then.
  virtual bool is_complete() const { return false; }
  /// Throws Error where it cannot be kept.
  virtual void put(std::int64_t record_id, std::span<const std::byte> record) = 0;
  /// A view into the store's memory, or into `scratch`. Throws Error (data) for damage.
  virtual std::span<const std::byte> get(std::int64_t record_id, std::vector<std::byte>& scratch) const = 0;
};

// A cache in memory.

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

// A cache in a file.

/// A header that says what the records are, then the records, each with its CRC-32C. Numbers are little-endian.
///
///   "LSCACHE\n"   8 bytes
///   version       uint32: 1
///   text size     uint32, bytes
///   records       uint64
///   record size   uint64, bytes
///   text          what the records were made of
///   CRC           uint32, of all before it
///
/// Until all records are there they lie in a temporary file in the same directory, which goes with its store. Then the
/// file gets its name, unless another process was first: each has a temporary file of its own, and what they write is
/// the same.
class FileStore final : public RecordStore {
 public:
  /// `text` tells what the records are made of. A file that is there is opened. Throws Error (data) where it is of
  /// something else, or cannot be read or made; Error (input) where the disk has not enough room for a new one.
  FileStore(std::filesystem::path path, const std::string& text, std::int64_t records, std::size_t record_bytes);

  bool is_complete() const override { return !writer_; }
  void put(std::int64_t record_id, std::span<const std::byte> record) override;
  std::span<const std::byte> get(std::int64_t record_id, std::vector<std::byte>& scratch) const override;

 private:
  void check(const std::string& header) const;
  void create(const std::string& header);
  std::uint64_t offset_of(std::int64_t record_id) const;

  std::filesystem::path path_;
  std::int64_t records_;
  std::size_t record_bytes_;
  std::size_t header_bytes_;
  std::optional<AtomicFile> writer_;  // of a file that was not there
  std::optional<InputFile> reader_;   // always there once the store is constructed
  std::atomic<std::int64_t> missing_ = 0;
};

}  // namespace lockstep::data
