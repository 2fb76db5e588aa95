// What one thread has read of a record file and not used yet.
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

/// Tells files apart for as long as anybody holds it; an address alone could come back with another file.
using FileIdentity = std::shared_ptr<const char>;

/// Records that are read one after the other come from one buffer, so that small ones cost no system call each. It
/// reads ahead as much as has been asked for in this run of neighbours, up to kLargestAhead: whatever the order, no
/// more than twice the bytes that were asked for are read. Records in a shuffled order are read one by one. A buffer as
/// large as kLargestAhead, or as the longest read. One per thread, for any number of files.
class ReadWindow {
 public:
  static constexpr std::size_t kLargestAhead = std::size_t{1} << 17;

  /// `count` bytes from `offset`, or those up to the end of the file; valid until the next call. `file` must hold the
  /// same bytes whenever it comes with this identity. Throws Error.
  std::string_view read(const InputFile& file, const FileIdentity& identity, std::uint64_t offset, std::size_t count);

  /// Of the headers that this thread reads, in a window or elsewhere.
  HeaderCheck& headers() { return headers_; }

 private:
  void refill(const InputFile& file, std::uint64_t offset, std::size_t count);

  HeaderCheck headers_;
  std::string buffer_;  // its first held_ bytes are those of the file from begin_
  FileIdentity identity_;
  std::uint64_t begin_ = 0;
  std::size_t held_ = 0;
  std::uint64_t run_ = 0;   // where the neighbours began
  std::uint64_t next_ = 0;  // where the last read ended
};

// A TFRecord file, read at any position.

/// A plain file is read where it lies: by pread, or, where map() was called, out of a mapping. A gzip or zlib file
/// cannot be sought, so it is inflated once, when it is opened, and its bytes stay in memory: its size there is that of
/// the records. Several threads may read at once.
class RecordFile {
 public:
  /// What to do with a gzip or zlib file that is damaged or ends too early: refuse it, or take what comes before.
  enum class PackedDamage { fail, cut };

  /// Throws Error (data) for a file that cannot be read or inflated.
  explicit RecordFile(std::filesystem::path path, PackedDamage damage = PackedDamage::fail);

  const std::filesystem::path& path() const { return file_.path(); }
  Compression compression() const { return compression_; }
  const FileStamp& stamp() const { return stamp_; }  ///< of the file as it lies on the disk
  std::uint64_t size() const;                        ///< bytes, inflated

  /// Whether the inflated bytes are only those before a damage.
  bool is_cut() const { return is_cut_; }

  /// Maps the file, so that records are looked at where the system's cache has them; what was touched of it counts as
  /// memory of the process. A file that is packed or cannot be mapped is read as before. No thread reads meanwhile.
  void map();
  /// Whether records come out of a mapping. It ends for good when a page could not be read, because the file shrank or
  /// its disk failed: from then on the file is read by pread, whose Error says what happened. Whoever used a record's
  /// view while this turned false has to read it again; the checksums were right, but what was used may be zeros.
  bool is_mapped() const noexcept { return mapped_ && mapped_->is_intact(); }

  /// Gives the pages of a mapping back to the system; they come again when they are read.
  void release_pages() const noexcept {
    if (mapped_) mapped_->release();
  }

  /// `count` bytes from `offset`, or those up to the end. The view is into `scratch` (grown if it is too small) or into
  /// the file's own memory.
  std::string_view read(std::uint64_t offset, std::size_t count, std::string& scratch) const;

  /// The data of record number `record`, whose header starts at `offset` and whose data are `length` bytes long. Checks
  /// both CRCs and throws RecordError, or Error (data) where the length in the file is not `length`. The view is into
  /// `window`, the mapping or the file's own memory.
  std::string_view record(std::int64_t record, std::uint64_t offset, std::uint64_t length, ReadWindow& window) const;

  /// Says that `count` bytes from `offset` will be read soon. Does not block.
  void will_need(std::uint64_t offset, std::uint64_t count) const;

  RecordLocation location(std::int64_t record, std::uint64_t offset) const;

 private:
  InputFile file_;
  FileIdentity identity_ = std::make_shared<char>();
  FileStamp stamp_;
  Compression compression_ = Compression::none;
  std::string inflated_;
  bool is_cut_ = false;
  std::optional<MappedFile> mapped_;
};

// Files that are opened when they are needed, few at a time.

/// The record files used last, by their numbers. Of any number of files no more than kMost are open, and those that a
/// thread still reads: the least recently used one goes. Thread-safe.
class RecentFiles {
 public:
  static constexpr std::size_t kMost = 256;  // a quarter of what a process may usually have open
  using Open = std::function<RecordFile(std::size_t number)>;

  /// `open` makes file `number`, by several threads at once; what it throws reaches the caller of get().
  explicit RecentFiles(Open open) : open_(std::move(open)) {}

  /// File `number`, which stays open as long as somebody holds it.
  std::shared_ptr<const RecordFile> get(std::size_t number) const;

 private:
  // Files are dealt to groups, so that threads seldom wait for each other.
  static constexpr std::size_t kGroups = 16;
  static constexpr std::size_t kMostOfGroup = kMost / kGroups;

  using File = std::pair<std::size_t, std::shared_ptr<const RecordFile>>;
  struct Group {
    std::mutex mutex;
    std::vector<File> files;  // the last used one first
  };

  static std::size_t group_of(std::size_t number);
  static std::shared_ptr<const RecordFile> find(Group& group, std::size_t number);

  Open open_;
  mutable std::array<Group, kGroups> groups_;
};

}  // namespace lockstep::data
