#include "lockstep/data/record/tfrecord.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/data/record/record_frame.h"

namespace lockstep::inline v0::data {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 18;
constexpr std::size_t kLargestStep = std::size_t{1} << 26;

Compression compression_of(const InputFile& file) {
  char head[kRecordHeaderBytes];
  return detect_compression({head, file.read_at(0, head, sizeof(head))});
}

}  // namespace

TFRecordReader::TFRecordReader(std::filesystem::path path)
    : file_(std::move(path)),
      compression_(compression_of(file_)),
      source_(open_bytes(file_, compression_)),
      buffer_(kBufferBytes, '\0') {}

/// Makes `count` bytes available, or all up to the end of the file; returns the number available.
/// Grows in steps, so that a wrong length does not cost more memory than the size of the file.
std::size_t TFRecordReader::make_available(std::size_t count) {
  while (end_ - begin_ < count) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= std::exchange(begin_, 0);
    if (end_ == buffer_.size()) {
      const std::size_t missing = count - end_;
      buffer_.resize(end_ + std::min(missing, kLargestStep));
    }
    const std::size_t got = source_->read(buffer_.data() + end_, buffer_.size() - end_);
    if (got == 0) break;
    end_ += got;
  }
  return std::min(end_ - begin_, count);
}

bool TFRecordReader::next(std::string_view& data) {
  if (lost_) return false;
  lost_ = true;  // until this record's frame is complete
  const std::size_t header = make_available(kRecordHeaderBytes);
  if (header == 0) return false;
  offset_ = next_;
  ++record_;
  if (header < kRecordHeaderBytes) throw_truncated_length(location(), header);
  if (!header_intact(buffered())) throw_length_crc(location(), buffered());
  const std::uint64_t length = record_length(buffered());
  begin_ += kRecordHeaderBytes;
  const std::uint64_t rest = length + kRecordFooterBytes;
  const std::uint64_t wanted = std::min(rest, kMaxRecordBytes + kRecordFooterBytes);
  const std::uint64_t left = rest < length ? end_ - begin_ : make_available(wanted);
  if (rest < length || left < wanted) throw_truncated_data(location(), length, left);
  if (length > kMaxRecordBytes) throw_too_long(location(), length);
  data = buffered().substr(0, length);
  const std::string_view footer = buffered().substr(length, kRecordFooterBytes);
  begin_ += rest;
  next_ = offset_ + kRecordHeaderBytes + rest;
  lost_ = false;
  if (!data_intact(data, footer)) throw_data_crc(location());
  return true;
}

RecordLocation TFRecordReader::location() const {
  return {file_.path().string(), record_, static_cast<std::int64_t>(offset_)};
}

namespace {

constexpr std::size_t kFlushBytes = std::size_t{1} << 18;

}  // namespace

TFRecordWriter::TFRecordWriter(const std::filesystem::path& path, Compression compression)
    : file_(path) {
  if (compression != Compression::none) deflater_.emplace(compression);
}

void TFRecordWriter::write(std::string_view data) {
  append_record(pending_, data);
  ++records_;
  if (pending_.size() >= kFlushBytes) flush();
}

void TFRecordWriter::finish() {
  flush();
  if (deflater_) {
    deflater_->finish(packed_);
    file_.write(packed_);
  }
  file_.finish();
  deflater_.reset();
  pending_ = {};
  packed_ = {};
}

void TFRecordWriter::close() {
  finish();
  publish();
}

void TFRecordWriter::flush() {
  if (deflater_) {
    deflater_->add(pending_, packed_);
    file_.write(packed_);
    packed_.clear();
  } else {
    file_.write(pending_);
  }
  pending_.clear();
}

}  // namespace lockstep::inline v0::data
