// Random access to record files.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/file/input_file.h"
#include "lockstep/data/record/compression.h"
#include "lockstep/data/record/inflated_store.h"
#include "lockstep/data/record/mapped_file.h"
#include "lockstep/data/record/record_error.h"
#include "lockstep/data/record/record_frame.h"

namespace lockstep::inline v0::data {

/// Identifies a file as long as a copy exists. An address alone could be reused for another file.
using FileIdentity = std::shared_ptr<const char>;

/// A read buffer for consecutive records, so that small ones do not cost one system call each. It
/// reads ahead as much as was requested in the current run of adjacent records, up to
/// kLargestAhead: in any order, at most twice the requested bytes are read. Records in shuffled
/// order are read one by one. The buffer has the size of kLargestAhead or of the longest read. Use
/// one per thread, for any number of files.
class ReadWindow {
 public:
  static constexpr std::size_t kLargestAhead = std::size_t{1} << 17;

  /// `count` bytes from `offset`, or fewer at the end of the file; valid until the next call.
  /// `file` must have the same contents in all calls with this identity. Throws Error.
  std::string_view read(const InputFile& file, const FileIdentity& identity, std::uint64_t offset,
                        std::size_t count);

  /// The checker of all headers that this thread reads.
  HeaderCheck& headers() { return headers_; }

 private:
  void refill(const InputFile& file, std::uint64_t offset, std::size_t count);

  HeaderCheck headers_;
  std::string buffer_;  // its first held_ bytes are those of the file starting at begin_
  FileIdentity identity_;
  std::uint64_t begin_ = 0;
  std::size_t held_ = 0;
  std::uint64_t run_ = 0;   // start of the current run
  std::uint64_t next_ = 0;  // end of the last read
};

/// Throws Error (data): the file has changed since the data set was opened.
[[noreturn]] void throw_changed(const std::filesystem::path& path);

/// Properties of a file that another process has scanned.
struct KnownFile {
  FileStamp stamp;
  Compression compression = Compression::none;
  std::uint64_t size = 0;  ///< bytes after decompression
};

/// A TFRecord file with random access. A plain file is read in place: with pread, or from a mapping
/// after map(). A gzip or zlib file is not seekable: it is decompressed into an InflatedStore when
/// its contents are first needed, and uses no descriptor. Thread-safe for reading.
class RecordFile {
 public:
  /// How to handle a damaged or truncated gzip or zlib file: fail, or use the part before the
  /// damage.
  enum class PackedDamage { fail, cut };

  /// Decompressed bytes are kept in `store`, as those of file `number` if that is shared; null: in
  /// a private store. Throws Error (data) for a file that cannot be read; all functions that need
  /// the contents of a compressed file do so if it cannot be decompressed.
  explicit RecordFile(std::filesystem::path path, PackedDamage damage = PackedDamage::fail,
                      std::shared_ptr<InflatedStore> store = nullptr, std::size_t number = 0);
  /// Uses `known` instead of reading the file; a compressed file is not even opened.
  RecordFile(std::filesystem::path path, const KnownFile& known, PackedDamage damage,
             std::shared_ptr<InflatedStore> store, std::size_t number = 0);

  const std::filesystem::path& path() const { return path_; }
  Compression compression() const { return compression_; }
  const FileStamp& stamp() const { return stamp_; }  ///< stamp of the file on disk
  /// Version of the file on disk, which must have been opened; reads both ends of a plain file.
  /// Throws Error (data).
  FileVersion version() const { return packed_ ? packed_->version : file_->version(); }
  std::uint64_t size() const;  ///< bytes after decompression
  /// Whether an index that ends at `size` can belong to the file. A compressed file is not
  /// decompressed for that: another size is an error on decompression.
  bool accepts_size(std::uint64_t size);

  /// Whether the decompressed bytes are only those before a damage.
  bool is_cut() const { return packed_ && !inflated().is_whole; }

  /// Maps the file, so that records are read directly from the page cache. Touched pages count as
  /// memory of the process. A compressed file, or one that cannot be mapped, is read as before; so
  /// is any file if the program has not called enable_mapped_files(). No thread may read during
  /// this call.
  void map();
  /// Whether records are read from a mapping. It ends permanently if a page could not be read,
  /// because the file shrank or its disk failed: from then on the file is read with pread, whose
  /// Error states the cause. A caller that used a record's view while this became false must read
  /// the record again: the checksums were correct, but the data used may be zeros.
  bool is_mapped() const noexcept { return mapped_ && mapped_->is_intact(); }

  /// Releases the pages of a mapping to the system. They are loaded again when read.
  void release_pages() const noexcept {
    if (mapped_) mapped_->release();
  }

  /// `count` bytes from `offset`, or fewer at the end. The view points into `scratch` (grown if
  /// necessary) or into memory of this object.
  std::string_view read(std::uint64_t offset, std::size_t count, std::string& scratch) const;

  /// The data of record `record`, whose header starts at `offset` and whose data is `length` bytes
  /// long. Checks both CRCs and throws RecordError, or Error (data) if the length in the file is
  /// not `length`. The view points into `window`, the mapping or memory of this object.
  std::string_view record(std::int64_t record, std::uint64_t offset, std::uint64_t length,
                          ReadWindow& window) const;

  /// Announces that `count` bytes from `offset` will be read soon. Does not block.
  void will_need(std::uint64_t offset, std::uint64_t count) const;

  RecordLocation location(std::int64_t record, std::uint64_t offset) const;

 private:
  /// A compressed file. The mutex protects the members after it until `is_inflated`.
  struct Packed {
    FileVersion version;
    PackedDamage damage = PackedDamage::fail;
    std::shared_ptr<InflatedStore> store;
    std::size_t number = 0;             // number of the file in the store
    std::optional<std::uint64_t> size;  // stated by its index
    std::atomic<bool> is_inflated = false;
    std::mutex mutex;
    InflatedFile inflated;
    std::optional<Error> failure;
  };

  void set_packed(const FileVersion& version, PackedDamage damage,
                  std::shared_ptr<InflatedStore> store, std::size_t number);
  const InflatedFile& inflated() const;
  std::string_view frame(std::uint64_t offset, std::size_t count, ReadWindow& window) const;

  std::filesystem::path path_;
  std::optional<InputFile> file_;  // unless compressed
  FileIdentity identity_ = std::make_shared<char>();
  FileStamp stamp_;
  Compression compression_ = Compression::none;
  std::unique_ptr<Packed> packed_;  // if compressed
  std::optional<MappedFile> mapped_;
};

/// An LRU cache of open record files, by number. At most kMaxOpen files are open, plus those that a
/// thread is still reading. Thread-safe.
class RecentFiles {
 public:
  /// A quarter of the usual limit of open files per process.
  static constexpr std::size_t kMaxOpen = 256;
  using Open = std::function<RecordFile(std::size_t number)>;

  /// `open` opens file `number`; several threads may call it at the same time. get() rethrows its
  /// exceptions.
  explicit RecentFiles(Open open) : open_(std::move(open)) {}

  /// File `number`, which stays open while a reference to it exists.
  std::shared_ptr<const RecordFile> get(std::size_t number) const;

 private:
  // Files are distributed to groups with separate locks, to reduce contention.
  static constexpr std::size_t kGroups = 16;
  static constexpr std::size_t kMaxPerGroup = kMaxOpen / kGroups;

  using File = std::pair<std::size_t, std::shared_ptr<const RecordFile>>;
  struct Group {
    std::mutex mutex;
    std::vector<File> files;  // most recently used first
  };

  static std::size_t group_of(std::size_t number);
  static std::shared_ptr<const RecordFile> find(Group& group, std::size_t number);

  Open open_;
  mutable std::array<Group, kGroups> groups_;
};

}  // namespace lockstep::inline v0::data
