// Random access to record files.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/input_file.h"
#include "lockstep/data/record/compression.h"
#include "lockstep/data/record/mapped_file.h"
#include "lockstep/data/record/record_frame.h"
#include "lockstep/data/sample.h"

namespace lockstep::data {

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

/// A TFRecord file with random access. A plain file is read in place: with pread, or from a mapping
/// after map(). A gzip or zlib file is not seekable: it is decompressed into memory when it is
/// opened. Thread-safe for reading.
class RecordFile {
 public:
  /// How to handle a damaged or truncated gzip or zlib file: refuse it, or use the part before the
  /// damage.
  enum class PackedDamage { fail, cut };

  /// Throws Error (data) for a file that cannot be read or decompressed.
  explicit RecordFile(std::filesystem::path path, PackedDamage damage = PackedDamage::fail);

  const std::filesystem::path& path() const { return file_.path(); }
  Compression compression() const { return compression_; }
  const FileStamp& stamp() const { return stamp_; }  ///< stamp of the file on disk
  /// Version of the file on disk; reads both ends of a plain file. Throws Error (data).
  FileVersion version() const { return packed_version_ ? *packed_version_ : file_.version(); }
  std::uint64_t size() const;  ///< bytes after decompression

  /// Whether the decompressed bytes are only those before a damage.
  bool is_cut() const { return is_cut_; }

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
  InputFile file_;
  FileIdentity identity_ = std::make_shared<char>();
  FileStamp stamp_;
  std::optional<FileVersion> packed_version_;  // of a compressed file, which is closed
  Compression compression_ = Compression::none;
  std::string inflated_;
  bool is_cut_ = false;
  std::optional<MappedFile> mapped_;
};

/// An LRU cache of open record files, by number. At most kMaxOpen files are open, plus those that a
/// thread is still reading. Thread-safe.
class RecentFiles {
 public:
  static constexpr std::size_t kMaxOpen =
      256;  // a quarter of the usual limit of open files per process
  using Open = std::function<RecordFile(std::size_t number)>;

  /// `open` opens file `number`; several threads may call it at the same time. Its exceptions reach
  /// the caller of get().
  explicit RecentFiles(Open open) : open_(std::move(open)) {}

  /// File `number`, which stays open while a reference to it exists.
  std::shared_ptr<const RecordFile> get(std::size_t number) const;

 private:
  // Files are distributed to groups with separate locks, to reduce contention.
  static constexpr std::size_t kGroups = 16;
  static constexpr std::size_t kMaxOfGroup = kMaxOpen / kGroups;

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

}  // namespace lockstep::data
