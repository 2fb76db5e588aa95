// TFRecord files of tf.train.Example records, as one data set.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/record/record_file.h"
#include "lockstep/data/record/record_index.h"
#include "lockstep/data/sample.h"
#include "lockstep/data/source/example_decoder.h"
#include "lockstep/data/source/tfrecord_options.h"
#include "lockstep/data/source/tfrecord_schema.h"

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
  /// do not fit. Error (input) where an option is needed to understand the records. With `skip_damage` damage() tells
  /// instead what is left out of files whose records cannot all be found, and records that cannot be used are passed
  /// over here; read() throws for those in any case.
  TFRecordSource(const std::vector<std::filesystem::path>& files, const TFRecordOptions& options,
                 std::string description);

  const SampleSpec& spec() const override { return decoder_->spec(); }
  std::int64_t size() const override { return size_; }
  bool has_images() const override { return decoder_->input() != InputKind::floats; }
  bool has_encoded_images() const override { return decoder_->input() == InputKind::encoded_image; }
  void read(std::int64_t record_id, Sample& sample) const override;
  std::vector<StoredFile> files() const override;
  void will_need(Range record_ids) const override;
  std::vector<DamagedFile> damage() const override { return damage_; }
  std::string description() const override { return description_; }

  const ExampleDecoder& decoder() const { return *decoder_; }
  /// The bytes of a record, checked but not decoded.
  std::string stored(std::int64_t record_id) const;
  /// The files of records 0 to `records` - 1; those alone that are read where they lie, without the packed ones, whose
  /// records are in memory.
  std::vector<std::filesystem::path> unpacked_files(std::int64_t records) const;
  /// Gives what is mapped back to the system, which can drop it from its cache only then. Reading brings it again.
  void release_pages() const;

 private:
  /// Whether an index is on the disk as it is here, should be, or is left alone: of a damaged file.
  enum class IndexState { kept, new_or_changed, not_worth_keeping };
  struct Shard {
    std::filesystem::path path;
    std::unique_ptr<RecordFile> file;  // empty where there are too many to keep them open: then among recent_
    FileStamp stamp;
    RecordIndex index;
    IndexState state = IndexState::kept;
  };
  struct Place {
    std::size_t shard = 0;
    std::int64_t record = 0;  // within its file
  };

  void open_files(const std::vector<std::filesystem::path>& files);
  void find_records(Shard& shard, const RecordFile& file);
  static RecordFile open_again(const Shard& shard);
  void map_files();
  void find_decoder(const TFRecordOptions& options);
  RecordSchema first_schema(const TFRecordOptions& options, const std::optional<PartDescription>& described) const;
  RecordSchema schema_of(std::int64_t record_id, const TFRecordOptions& options,
                         const std::optional<PartDescription>& described) const;
  /// `is_whole` turns false where records were passed over.
  LabelRange scan_labels(std::size_t shard, const std::string& label_feature, bool& is_whole) const;
  std::int64_t count_classes(const std::string& label_feature);
  void keep_indexes();
  Place place_of(std::int64_t record_id) const;
  void advise(std::size_t shard, std::uint64_t begin, std::uint64_t bytes) const;
  RecordLocation location(std::size_t shard, std::int64_t record) const;
  [[noreturn]] void fail(const Place& place, const SampleProblem& problem) const;
  /// use(data) of one record; once more, with what pread gives, where its mapping lost a page meanwhile.
  template <typename Use>
  void with_record(std::size_t shard, std::int64_t record, Use use) const;
  /// The data of record `record` of `shard`, whose file is `file`; valid until this thread reads the next.
  static std::string_view record_of(const Shard& shard, const RecordFile& file, std::int64_t record);

  std::filesystem::path index_dir_;
  bool skip_damage_;
  std::string description_;
  std::vector<Shard> shards_;
  std::vector<std::int64_t> first_records_;  // of each shard
  std::int64_t size_ = 0;
  std::vector<DamagedFile> damage_;
  RecentFiles recent_;
  std::optional<ExampleDecoder> decoder_;  // always there once the source is constructed
};

}  // namespace lockstep::data
