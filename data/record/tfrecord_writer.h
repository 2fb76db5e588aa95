// Writes TFRecord files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "data/record/atomic_file.h"
#include "data/record/compression.h"

namespace lockstep::data {

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
