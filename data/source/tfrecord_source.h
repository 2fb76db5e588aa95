// TFRecord files of tf.train.Example records, as one data set.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset.h"
#include "data/record/record_file.h"
#include "data/record/record_index.h"
#include "data/sample.h"
#include "data/source/example_decoder.h"

namespace lockstep::data {

/// The files that match the glob patterns, in the order of their names, without the indexes and descriptions that lie
/// beside them. Throws Error (data) where one matches nothing.
std::vector<std::filesystem::path> matching_files(const std::vector<std::string>& patterns);

/// Record ids run through the files in the given order. Opening reads headers (or keeps what an index says) and
/// inflates packed files; where nobody says how many classes there are, all labels are read once and the answer is kept
/// with the index.
class TFRecordSource final : public RecordSource {
 public:
  /// Throws Error (data) for damage, with file, record, offset and kind; for files without any record; for records that
  /// do not fit. Error (input) where an option is needed to understand the records.
  TFRecordSource(const std::vector<std::filesystem::path>& files, const TFRecordOptions& options,
                 std::string description);

  const SampleSpec& spec() const override { return decoder_->spec(); }
  std::int64_t size() const override { return shards_.back().first_record + shards_.back().index.records(); }
  bool has_images() const override { return decoder_->input() != InputKind::floats; }
  bool has_encoded_images() const override { return decoder_->input() == InputKind::encoded_image; }
  void read(std::int64_t record_id, Sample& sample) const override;
  std::vector<StoredFile> files() const override;
  void will_need(Range record_ids) const override;
  std::string description() const override { return description_; }

  const ExampleDecoder& decoder() const { return *decoder_; }
  /// The bytes of a record, checked but not decoded.
  std::string stored(std::int64_t record_id) const;
  /// The files of records 0 to `records` - 1; those alone that are read where they lie, without the packed ones, whose
  /// records are in memory.
  std::vector<std::filesystem::path> unpacked_files(std::int64_t records) const;

 private:
  struct Shard {
    std::filesystem::path path;
    std::optional<RecordFile> file;  // empty where there are too many files to keep open: then opened for each read
    FileStamp stamp;
    RecordIndex index;
    bool index_kept = false;  // as it is here
    std::int64_t first_record = 0;
  };

  [[noreturn]] static void fail(const Shard& shard, std::int64_t record, const SampleProblem& problem);
  void map_files();
  void open_files(const std::vector<std::filesystem::path>& files);
  void find_decoder(const TFRecordOptions& options);
  LabelRange scan_labels(const Shard& shard, const std::string& label_feature) const;
  std::int64_t count_classes(const std::string& label_feature);
  void keep_indexes();
  const Shard& shard_of(std::int64_t record_id) const;
  /// use(file) of `shard`'s file, opened for that where it is not kept open.
  template <typename Use>
  static void with_file(const Shard& shard, Use use);
  /// use(file, data) of record `record` of `shard`; once more, with what pread gives, where its mapping lost a page
  /// meanwhile.
  template <typename Use>
  static void with_record(const Shard& shard, std::int64_t record, Use use);
  /// The data of record `record` of `shard`, whose file is `file`; valid until this thread reads the next.
  static std::string_view record_of(const Shard& shard, const RecordFile& file, std::int64_t record);

  std::filesystem::path index_dir_;
  std::string description_;
  std::vector<Shard> shards_;
  std::optional<ExampleDecoder> decoder_;  // always there once the source is constructed
};

}  // namespace lockstep::data
