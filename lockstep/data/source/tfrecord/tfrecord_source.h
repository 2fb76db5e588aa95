// TFRecord files of tf.train.Example records as one data set.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/data/record/record_error.h"
#include "lockstep/data/record/record_file.h"
#include "lockstep/data/record/record_index.h"
#include "lockstep/data/sample/record_source.h"
#include "lockstep/data/sample/sample.h"
#include "lockstep/data/source/file_options.h"
#include "lockstep/data/source/tfrecord/example_decoder.h"
#include "lockstep/data/source/tfrecord/record_schema.h"

namespace lockstep::inline v0::data {

/// The files that match the glob patterns, sorted by name, without indexes and descriptions next to
/// them. A pattern that is the name of a file matches this file. Throws Error (data) if a pattern
/// matches nothing.
std::vector<std::filesystem::path> matching_files(const std::vector<std::string>& patterns);

/// Record ids count through the files in the given order. Opening reads headers, or an index; then
/// a compressed file is decompressed when its first record is read. If the number of classes is not
/// given, all labels are read once and the result is stored with the index.
class TFRecordSource final : public RecordSource {
 public:
  /// Throws Error (data) for damage, with file, record, offset and kind; for files without any
  /// record; for records that do not match the schema. Throws Error (input) if an option is
  /// required to interpret the records. With `skip_damage`, SourceInfo::damage reports the skipped
  /// part of files whose records cannot all be located, and unusable records are skipped here;
  /// read() always throws for them.
  TFRecordSource(const std::vector<std::filesystem::path>& files, const TFRecordOptions& options,
                 std::string description);

  void read(std::int64_t record_id, Sample& sample) const override;
  bool keeps_image(const StoredImage& image) const override;
  [[noreturn]] void fail_image(std::int64_t record_id, const Error& error) const override;
  void will_need(Range record_ids) const override;

  /// PartDescription::pads, which Dataset::from_tfrecords() applies.
  const std::map<std::string, std::int64_t>& pads() const { return pads_; }
  const ExampleDecoder& decoder() const { return *decoder_; }
  /// The bytes of a record, checked but not decoded.
  std::string stored(std::int64_t record_id) const;
  /// The files of records 0 to `records` - 1 that are read in place, without compressed files.
  std::vector<std::filesystem::path> unpacked_files(std::int64_t records) const;
  /// Releases mapped pages to the system, which can then drop them from the page cache. Reading
  /// loads them again.
  void release_pages() const;

 private:
  /// Whether the index on disk is current, must be written, or is not written because the file is
  /// damaged.
  enum class IndexState { kept, new_or_changed, not_worth_keeping };
  struct Shard {
    std::filesystem::path path;
    /// Null if there are too many plain files to keep open: they are in recent_.
    std::unique_ptr<RecordFile> file;
    FileVersion version;
    RecordIndex index;
    IndexState state = IndexState::kept;
    bool is_loaded = false;  // the index was on disk
    Compression compression = Compression::none;
    std::uint64_t size = 0;  // bytes after decompression
  };
  struct RecordPosition {
    std::size_t shard = 0;
    std::int64_t record = 0;  // index within its file
  };

  void open_files(const std::vector<std::filesystem::path>& files);
  /// Returns the damage that is skipped, if any.
  std::optional<DamagedFile> open_file(Shard& shard);
  /// Opens all files, each on one member of the exchange.
  void share_files();
  /// The ranks of the node decompress each file once.
  void share_store();
  std::optional<DamagedFile> find_records(Shard& shard, RecordFile& file);
  bool keeps_open(const Shard& shard) const;
  RecordFile::PackedDamage packed_damage() const;
  static RecordFile open_again(const Shard& shard);
  void map_files();
  void find_decoder(const TFRecordOptions& options);
  RecordSchema first_schema(const TFRecordOptions& options,
                            const std::optional<PartDescription>& described) const;
  /// The number of a record whose schema is known, and its bytes.
  std::pair<std::int64_t, std::string> first_record(
      const TFRecordOptions& options, const std::optional<PartDescription>& described) const;
  RecordSchema schema_of(std::int64_t record_id, const TFRecordOptions& options,
                         const std::optional<PartDescription>& described) const;
  /// Sets `is_whole` to false if records were skipped.
  LabelRange scan_labels(std::size_t shard, const std::string& label_feature, bool& is_whole) const;
  /// The range of the labels of all files.
  LabelRange find_labels(const std::string& label_feature);
  /// Scans the labels of the files of this member whose index lacks them.
  std::vector<std::pair<std::size_t, LabelRange>> scan_my_labels(const std::string& label_feature);
  void keep_indexes();
  RecordPosition position_of(std::int64_t record_id) const;
  void advise(std::size_t shard, std::uint64_t begin, std::uint64_t bytes) const;
  RecordLocation location(std::size_t shard, std::int64_t record) const;
  [[noreturn]] void fail(const RecordPosition& position, const SampleProblem& problem) const;
  /// The advice in the error of a record that the index of `shard` does not match; empty if it
  /// matches.
  std::string index_hint(const Shard& shard, const Error& error) const;
  std::string index_hint(const Shard& shard, std::string_view record) const;
  /// Calls use(data) for one record; again with data from pread if its mapping lost a page in the
  /// meantime.
  template <typename Use>
  void with_record(std::size_t shard, std::int64_t record, Use use) const;
  /// The data of record `record` of `shard`, whose file is `file`; valid until this thread reads
  /// the next record.
  std::string_view record_of(const Shard& shard, const RecordFile& file, std::int64_t record) const;

  std::filesystem::path index_dir_;
  bool skip_damage_;
  IndexExchange exchange_;  // used while opening
  std::map<std::string, std::int64_t> pads_;
  std::vector<Shard> shards_;
  std::vector<std::int64_t> first_records_;  // first record of each shard
  std::shared_ptr<InflatedStore> inflated_;  // contents of all compressed files
  RecentFiles recent_;
  std::optional<ExampleDecoder> decoder_;  // always set after construction
};

}  // namespace lockstep::inline v0::data
