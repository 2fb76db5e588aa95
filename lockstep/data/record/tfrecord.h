// The records of a TFRecord file, one after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/atomic_file.h"
#include "lockstep/base/input_file.h"
#include "lockstep/data/record/compression.h"
#include "lockstep/data/sample.h"

namespace lockstep::data {

/// Reads a plain, gzip or zlib file (told by content) from its beginning, with memory for a few records whatever its
/// size. Both CRCs of every record are checked. An empty file has no records. One thread.
class TFRecordReader {
 public:
  /// Throws Error (data) where the file cannot be read.
  explicit TFRecordReader(std::filesystem::path path);

  /// The next record's data into `data`, valid until the next call; false at the end of the file. Throws RecordError
  /// for damage, Error (data) for a packed stream that is damaged. After a data_crc fault the next call goes on behind
  /// the record; after any other, the file cannot be read further and the next call returns false.
  bool next(std::string_view& data);

  /// Of the record that next() gave or failed at last.
  RecordLocation location() const;
  std::int64_t records_read() const { return record_ + 1; }  ///< records that next() has returned
  Compression compression() const { return compression_; }   ///< of the file, as asked for or recognized

 private:
  std::size_t need(std::size_t count);
  std::string_view buffered() const { return {buffer_.data() + begin_, end_ - begin_}; }

  InputFile file_;
  Compression compression_;
  std::unique_ptr<ByteSource> source_;
  std::string buffer_;  // [begin_, end_) holds bytes not yet given out
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::uint64_t offset_ = 0;  // of the current record
  std::uint64_t next_ = 0;    // of the record after it
  std::int64_t record_ = -1;
  bool lost_ = false;  // nothing can be read behind a damaged frame
};

// Writes TFRecord files.

/// A new TFRecord file, which appears under its name when close() (or publish()) has succeeded and not before: a full
/// disk, a failure or a crash leaves what stood there as it was. One thread.
class TFRecordWriter {
 public:
  /// Throws Error (data) where the directory cannot be written.
  explicit TFRecordWriter(const std::filesystem::path& path, Compression compression = Compression::none);

  /// Appends one record. Throws Error (data) where the disk is full; the file is given up then.
  void write(std::string_view data);

  /// Writes what is left and makes it durable; the file still has no name. Throws Error (data).
  void finish();

  /// Gives the finished file its name. Throws Error (data). For those who publish several files together; others call
  /// close().
  void publish() { file_.publish(); }

  /// finish() and publish(). Without it nothing stays.
  void close();

  std::int64_t records() const { return records_; }  ///< records written so far

 private:
  void flush();

  AtomicFile file_;
  std::optional<Deflater> deflater_;
  std::string pending_;  // framed records, not packed yet
  std::string packed_;
  std::int64_t records_ = 0;
};

}  // namespace lockstep::data
