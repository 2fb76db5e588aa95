#include "data/record/record_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "data/record/record_frame.h"

namespace lockstep::data {

RecordFile::RecordFile(std::filesystem::path path) : file_(std::move(path)), stamp_(file_stamp(file_.path())) {
  char head[kRecordHeaderBytes];
  compression_ = detect_compression({head, file_.read_at(0, head, sizeof(head))});
  if (compression_ == Compression::none) return;
  inflated_ = read_all(file_, compression_);
  file_.close();
}

std::uint64_t RecordFile::size() const {
  return compression_ == Compression::none ? static_cast<std::uint64_t>(stamp_.size) : inflated_.size();
}

std::string_view RecordFile::inflated(std::uint64_t offset, std::size_t count) const {
  return std::string_view(inflated_).substr(std::min<std::uint64_t>(offset, inflated_.size()), count);
}

std::string_view RecordFile::read(std::uint64_t offset, std::size_t count, std::string& scratch) const {
  if (compression_ != Compression::none) return inflated(offset, count);
  if (scratch.size() < count) scratch.resize(count);
  return {scratch.data(), file_.read_at(offset, scratch.data(), count)};
}

std::string_view RecordFile::record(std::int64_t record, std::uint64_t offset, std::uint64_t length,
                                    ReadWindow& window) const {
  const std::size_t count = kRecordHeaderBytes + length + kRecordFooterBytes;
  const std::string_view frame =
      compression_ == Compression::none ? window.read(file_, identity_, offset, count) : inflated(offset, count);
  if (frame.size() < kRecordHeaderBytes) throw_truncated_length(location(record, offset), frame.size());
  if (!header_intact(frame)) throw_length_crc(location(record, offset));
  if (record_length(frame) != length) {
    throw Error(ErrorCategory::data, location(record, offset).text(),
                fmt::format("needed a record of {} bytes, as the index says", length),
                fmt::format("it has {}; the file has changed, start again", record_length(frame)));
  }
  if (frame.size() < kRecordHeaderBytes + length + kRecordFooterBytes) {
    throw_truncated_data(location(record, offset), length, frame.size() - kRecordHeaderBytes);
  }
  const std::string_view data = frame.substr(kRecordHeaderBytes, length);
  if (!data_intact(data, frame.substr(kRecordHeaderBytes + length))) throw_data_crc(location(record, offset));
  return data;
}

void RecordFile::will_need(std::uint64_t offset, std::uint64_t count) const {
  if (compression_ == Compression::none) file_.will_need(offset, count);
}

RecordLocation RecordFile::location(std::int64_t record, std::uint64_t offset) const {
  return {path().string(), record, static_cast<std::int64_t>(offset)};
}

}  // namespace lockstep::data
