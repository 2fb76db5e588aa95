// The records of a TFRecord file, one after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "data/record/compression.h"
#include "data/record/input_file.h"
#include "data/record/record_error.h"

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

}  // namespace lockstep::data
