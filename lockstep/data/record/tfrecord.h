// Sequential reading and writing of TFRecord files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/file/atomic_file.h"
#include "lockstep/base/file/input_file.h"
#include "lockstep/data/record/compression.h"
#include "lockstep/data/record/record_error.h"

namespace lockstep::inline v0::data {

/// Reads a plain, gzip or zlib file (detected by content) from its beginning, with memory for a few
/// records regardless of its size. Checks both CRCs of every record. An empty file has no records.
/// Not thread-safe.
class TFRecordReader {
 public:
  /// Throws Error (data) if the file cannot be read.
  explicit TFRecordReader(std::filesystem::path path);

  /// Sets `data` to the next record's data, valid until the next call. Returns false at the end of
  /// the file. Throws RecordError for damage, Error (data) for a damaged compressed stream. After a
  /// data_crc fault, the next call continues after the record; after any other fault, the file
  /// cannot be read further and the next call returns false.
  bool next(std::string_view& data);

  /// The location of the record that next() returned, or failed to read, last.
  RecordLocation location() const;
  std::int64_t records_read() const { return record_ + 1; }  ///< records that next() has returned
  /// The detected compression of the file.
  Compression compression() const { return compression_; }

 private:
  std::size_t make_available(std::size_t count);
  std::string_view buffered() const { return {buffer_.data() + begin_, end_ - begin_}; }

  InputFile file_;
  Compression compression_;
  std::unique_ptr<ByteSource> source_;
  std::string buffer_;  // [begin_, end_) holds bytes not yet returned
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::uint64_t offset_ = 0;  // offset of the current record
  std::uint64_t next_ = 0;    // offset of the next record
  std::int64_t record_ = -1;
  bool lost_ = false;  // nothing can be read after a damaged frame
};

/// Writes a new TFRecord file, which appears under its name only after close() (or publish()) has
/// succeeded. A full disk, a failure or a crash leaves the previous file unchanged. Not
/// thread-safe.
class TFRecordWriter {
 public:
  /// Throws Error (data) if the directory is not writable.
  explicit TFRecordWriter(const std::filesystem::path& path,
                          Compression compression = Compression::none);

  /// Appends one record. Throws Error (data) if the disk is full; the file is then abandoned.
  void write(std::string_view data);

  /// Writes the remaining data and makes it durable. The file is not visible under its name yet.
  /// Throws Error (data).
  void finish();

  /// Moves the finished file to its name. Throws Error (data). For publishing several files
  /// together; otherwise call close().
  void publish() { file_.publish(); }

  /// Calls finish() and publish(). Without it, the file is discarded.
  void close();

  std::int64_t records() const { return records_; }  ///< records written so far

 private:
  void flush();

  AtomicFile file_;
  std::optional<Deflater> deflater_;
  std::string pending_;  // framed records, not compressed yet
  std::string packed_;
  std::int64_t records_ = 0;
};

}  // namespace lockstep::inline v0::data
