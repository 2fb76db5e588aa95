#include "data/record/tfrecord_writer.h"

#include "data/record/record_frame.h"

namespace lockstep::data {
namespace {

constexpr std::size_t kFlushBytes = std::size_t{1} << 18;

}  // namespace

TFRecordWriter::TFRecordWriter(const std::filesystem::path& path, Compression compression) : file_(path) {
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

}  // namespace lockstep::data
