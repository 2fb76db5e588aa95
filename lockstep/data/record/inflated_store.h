// Where the decompressed bytes of gzip and zlib record files are kept for random access.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/file/input_file.h"
#include "lockstep/base/system/shared_segment.h"
#include "lockstep/data/record/compression.h"

namespace lockstep::inline v0::data {

/// The decompressed bytes of one file: in memory, or a range of a temporary file.
struct InflatedFile {
  std::string bytes;                      ///< the bytes, unless `disk` is set
  std::shared_ptr<const InputFile> disk;  ///< the temporary file with the bytes
  std::uint64_t begin = 0;                ///< offset of the first one in `disk`
  std::uint64_t size = 0;                 ///< number of bytes
  bool is_whole = true;  ///< false if the compressed data is damaged after the bytes
};

/// Keeps decompressed files for as long as the process runs: small ones of 64 MiB together in
/// memory, all others in one unnamed temporary file, which uses one descriptor and disappears with
/// the process. The processes of a node can share their stores: each file is then decompressed by
/// the first that needs it, always on disk, and the others read the temporary file of that process.
/// Thread-safe.
class InflatedStore {
 public:
  static constexpr std::size_t kMaxHeldFile = std::size_t{8} << 20;  ///< larger ones are on disk
  static constexpr std::size_t kMaxHeld = std::size_t{64} << 20;     ///< then all are on disk

  /// The temporary file is created on first use in the first of these directories that allows it:
  /// `directory` (if set), $TMPDIR, /var/tmp, /tmp. If none does, all files are in memory.
  explicit InflatedStore(std::filesystem::path directory = {}) : directory_(std::move(directory)) {}

  /// Identifies the temporary file of a store to other processes of the same user on the node.
  struct Handle {
    SharedSegment::Owner owner;
    std::int32_t descriptor = -1;  ///< -1: no temporary file
    std::uint64_t device = 0;      ///< device number of its file system
    std::uint64_t inode = 0;
  };
  /// Creates the temporary file, for stores that share `files` files.
  Handle handle(std::size_t files);
  /// Shares with the `stores` of the node, of which this is number `own`, before any file is
  /// decompressed. If the system forbids it, this store decompresses every file that it needs.
  void share(std::span<const Handle> stores, std::size_t own);

  /// Decompresses `file` with little memory, or waits for another process that does. `size`: the
  /// number of bytes, if its index states it; `number`: its number among the shared files. Throws
  /// Error (data) for another number of bytes; if a compressed file takes more than half of the
  /// free space of the disk, or more memory than available if no temporary file is possible; for
  /// damage, unless `keep_intact_part`.
  InflatedFile inflate(const InputFile& file, Compression compression,
                       std::optional<std::uint64_t> size, bool keep_intact_part,
                       std::size_t number = 0);

 private:
  class Inflation;
  struct Entry;
  InflatedFile inflate_here(const InputFile& file, Compression compression,
                            std::optional<std::uint64_t> size, bool keep_intact_part);
  std::optional<InflatedFile> find_shared(std::size_t number, std::optional<std::uint64_t> size,
                                          bool keep_intact_part) const;
  void publish(std::size_t number, const InflatedFile& file) const;
  InflatedFile keep_in_memory(DecompressedFile inflated);
  std::optional<InflatedFile> keep_on_disk(Inflation& inflation, std::string_view head,
                                           std::optional<std::uint64_t> size);
  std::shared_ptr<const InputFile> open_disk();
  std::uint64_t write(Inflation& inflation, std::string_view head, std::uint64_t begin,
                      std::optional<std::uint64_t> size) const;

  const std::filesystem::path directory_;
  std::atomic<std::size_t> held_ = 0;  // bytes in memory
  std::mutex mutex_;
  std::shared_ptr<const InputFile> disk_;  // the temporary file
  std::uint64_t end_ = 0;                  // end of its contents
  // The temporary files of the stores of the node, null where one cannot be opened; empty if not
  // shared. The first begins with an entry for each file.
  std::vector<std::shared_ptr<const InputFile>> shared_;
  std::size_t own_ = 0;  // number of this store among them
};

}  // namespace lockstep::inline v0::data
