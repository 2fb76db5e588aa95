#include "data/record/record_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "data/record/record_frame.h"

namespace lockstep::data {

namespace {

/// The data of a frame that is whole and holds `length` bytes of them; nothing where anything is wrong with it.
std::optional<std::string_view> intact_data(std::string_view frame, std::uint64_t length, HeaderCheck& headers) {
  if (frame.size() < kRecordHeaderBytes + length + kRecordFooterBytes) return std::nullopt;
  if (record_length(frame) != length || !headers.is_intact(frame)) return std::nullopt;
  const std::string_view data = frame.substr(kRecordHeaderBytes, length);
  if (!data_intact(data, frame.substr(kRecordHeaderBytes + length))) return std::nullopt;
  return data;
}

std::string_view part_of(std::string_view bytes, std::uint64_t offset, std::size_t count) {
  return bytes.substr(std::min<std::uint64_t>(offset, bytes.size()), count);
}

}  // namespace

RecordFile::RecordFile(std::filesystem::path path, PackedDamage damage)
    : file_(std::move(path)), stamp_(file_.stamp()) {
  char head[kRecordHeaderBytes];
  compression_ = detect_compression({head, file_.read_at(0, head, sizeof(head))});
  if (compression_ == Compression::none) return;
  if (damage == PackedDamage::fail) {
    inflated_ = read_all(file_, compression_);
  } else {
    auto [bytes, is_whole] = read_what_is_whole(file_, compression_);
    inflated_ = std::move(bytes);
    is_cut_ = !is_whole;
  }
  file_.close();
}

std::uint64_t RecordFile::size() const {
  return compression_ == Compression::none ? static_cast<std::uint64_t>(stamp_.size) : inflated_.size();
}

void RecordFile::map() {
  if (compression_ == Compression::none) mapped_ = MappedFile::map(file_, size());
}

std::string_view RecordFile::read(std::uint64_t offset, std::size_t count, std::string& scratch) const {
  if (compression_ != Compression::none) return part_of(inflated_, offset, count);
  if (scratch.size() < count) scratch.resize(count);
  return {scratch.data(), file_.read_at(offset, scratch.data(), count)};
}

std::string_view RecordFile::record(std::int64_t record, std::uint64_t offset, std::uint64_t length,
                                    ReadWindow& window) const {
  const std::size_t count = kRecordHeaderBytes + length + kRecordFooterBytes;
  if (is_mapped()) {
    // Where anything is wrong, pread finds out what: a file that shrank, a disk that failed, or the record itself.
    if (const auto data = intact_data(part_of(mapped_->bytes(), offset, count), length, window.headers())) return *data;
  }
  const std::string_view frame = compression_ == Compression::none ? window.read(file_, identity_, offset, count)
                                                                   : part_of(inflated_, offset, count);
  if (frame.size() < kRecordHeaderBytes) throw_truncated_length(location(record, offset), frame.size());
  if (!window.headers().is_intact(frame)) throw_length_crc(location(record, offset));
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
