// A TFRecord file, read at any position.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "data/record/compression.h"
#include "data/record/input_file.h"
#include "data/record/mapped_file.h"
#include "data/record/read_window.h"
#include "data/record/record_error.h"

namespace lockstep::data {

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

}  // namespace lockstep::data
