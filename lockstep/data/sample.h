// Samples, their sources, and damage of record files.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/pixels.h"
#include "lockstep/data/order/batch_plan.h"

namespace lockstep::data {

/// A location in a record file, for messages.
struct RecordLocation {
  std::string file;         ///< path of the file
  std::int64_t record = 0;  ///< index of the record in the file, from 0
  /// byte offset of the record's header; in a compressed file, offset in the decompressed stream
  std::int64_t offset = 0;

  /// "train-00000-of-00002.tfrecord: record 500 at byte 418000"
  std::string text() const;
};

/// The largest record: the largest message of protobuf. Without a limit, a file with a hole could
/// announce a record that needs any amount of memory.
inline constexpr std::uint64_t kMaxRecordBytes = (std::uint64_t{1} << 31) - 1;

/// Damage of a record: truncation, or a checksum mismatch, in its length or in its data.
enum class RecordFault { truncated_length, length_crc, truncated_data, data_crc };

/// "truncated length", "length CRC", "truncated data", "data CRC".
std::string_view fault_name(RecordFault fault);

/// A damaged record, as an Error (data).
class RecordError : public Error {
 public:
  /// `details` follows the kind of damage in the message: "24 bytes announced, 10 left".
  RecordError(RecordFault fault, RecordLocation location, std::string_view details);

  RecordFault fault() const noexcept { return fault_; }                  ///< kind of damage
  const RecordLocation& location() const noexcept { return location_; }  ///< location of the record

 private:
  RecordFault fault_;
  RecordLocation location_;
};

/// Throws the RecordError for a file that ends `left` bytes after the start of a header.
[[noreturn]] void throw_truncated_length(RecordLocation location, std::uint64_t left);
/// Throws the RecordError for a record of `announced` bytes of which only `left` are in the file.
[[noreturn]] void throw_truncated_data(RecordLocation location, std::uint64_t announced,
                                       std::uint64_t left);
/// Throws Error (data) for a record of `length` bytes, more than kMaxRecordBytes.
[[noreturn]] void throw_too_long(const RecordLocation& location, std::uint64_t length);
/// Throws the RecordError for a length field that does not match its checksum. `header` is what the
/// record begins with; at the start of a file it may show that the file has another format.
[[noreturn]] void throw_length_crc(RecordLocation location, std::string_view header);
/// Throws the RecordError for data that does not match its checksum.
[[noreturn]] void throw_data_crc(RecordLocation location);

/// A record file that is used only up to a damage: after a damaged length, or if the file ends
/// within a record, further records cannot be located.
struct DamagedFile {
  RecordLocation location;  ///< first skipped record: file, number, byte
  /// "length CRC", "truncated length", "truncated data", "gzip stream", "zlib stream".
  std::string kind;
  /// bytes from there to the end; in a compressed file, of those that could be decompressed
  std::int64_t bytes_left_out = 0;

  /// "a.tfrecord: record 7 at byte 5852: length CRC; the last 1204 bytes are skipped"
  std::string text() const;
};

/// A record that could not be read.
struct BadRecord {
  std::int64_t record_id = 0;  ///< id of the record
  std::string problem;         ///< with file, record, byte offset and kind
};

/// Throws the Error (data) for more than `limit` bad records, with `one` as an example.
[[noreturn]] void throw_too_many_bad(std::int64_t limit, std::string_view one);

/// The shape and label type of a data set's decoded records.
struct SampleSpec {
  std::vector<std::int64_t> shape;  ///< shape of the features without the batch: [H, W, C] or [F]
  std::int64_t classes = 0;  ///< labels are 0 .. classes-1; 0 if the data set has targets instead
  /// Number of float targets per sample (regression); 0 if the data set has classes.
  std::int64_t targets = 0;

  std::int64_t feature_count() const;  ///< product of `shape`
  bool operator==(const SampleSpec&) const = default;
};

/// For descriptions of data whose labels are numbers: ", labels from 1 to 3 (4 classes, none of
/// class 0)". Empty if `lowest` is 0.
std::string text_of_labels(std::int64_t lowest, std::int64_t highest);

/// The first index at which two lists of RecordSource::feature_names(), or of target_names(), have
/// different names; nullopt if there is none. A number, of a column without a name, matches any
/// name.
std::optional<std::size_t> different_feature(const std::vector<std::string>& names,
                                             const std::vector<std::string>& others);

struct Sample;

/// Converts an image to a sample's features, or to its pixels if those are requested. Throws Error
/// (data) for an image that it does not support.
class ImageStep {
 public:
  virtual ~ImageStep() = default;
  /// Takes stored pixels [shape...] of the data set.
  virtual void take_stored(std::span<const std::uint8_t> pixels, Sample& sample) = 0;
  /// Takes a JPEG or PNG file.
  virtual void take_encoded(std::span<const std::uint8_t> file, Sample& sample) = 0;
};

/// Throws Error (input) unless the shape has at least one extent, all extents are positive, and
/// their product is at most 2^28.
void check_shape(std::span<const std::int64_t> shape, const std::string& where);

/// Checks the shape as check_shape() does, and that the spec has either classes or targets.
void check_spec(const SampleSpec& spec, const std::string& where);

/// One decoded record, as views of the memory of its batch.
struct Sample {
  std::span<float> features;  ///< [shape...], row-major; uint8 images are stored as value / 255
  std::int32_t label = 0;     ///< if the data set has classes
  std::span<float> targets;   ///< if the data set has targets
  /// [shape...], if pixels are requested; `features` is then empty.
  std::span<std::uint8_t> pixels = {};
  ImageStep* images = nullptr;  ///< receives images; null: they become features or pixels as stored
  std::uint64_t seed = 0;       ///< seed and epoch of the pass; sources with maps or recipes
  std::int64_t epoch = 0;       ///< build a SampleKey from them and the record id

  /// Stores a uint8 image; `normalization` applies to features only.
  void set_image(std::span<const std::uint8_t> image,
                 const ChannelNormalization& normalization = {});
};

/// The values that a map may depend on, so that its result is the same on every rank and after a
/// resume.
struct SampleKey {
  std::uint64_t seed = 0;      ///< seed of the run
  std::int64_t epoch = 0;      ///< counted from 0
  std::int64_t record_id = 0;  ///< id of the record, the same for every world size
};

/// Modifies one sample in place. Called from several threads concurrently.
using SampleMap = std::function<void(Sample&, const SampleKey&)>;

/// Returns whether to keep a sample. Called from several threads concurrently.
using SamplePredicate = std::function<bool(const Sample&)>;

/// Writes the whole record `record_id` to the sample's features and its label or targets. Called
/// from several threads concurrently, in any order, possibly more than once per record. It must be
/// a pure function of the record id.
using SampleGenerator = std::function<void(std::int64_t record_id, Sample& sample)>;

/// The features of all records, consecutive: floats or uint8 images.
using MemoryFeatures = std::variant<std::vector<float>, std::vector<std::uint8_t>>;
/// Class numbers [N], or targets [N, targets].
using MemoryLabels = std::variant<std::vector<std::int32_t>, std::vector<float>>;

struct ImageRecipe;
struct TableSchema;

/// What was done to records, for a later evaluation of the model that was trained on them.
struct RecordChanges {
  std::shared_ptr<const ImageRecipe> images = {};  ///< the recipe; null: none
  /// Whether only the program that made the data set can repeat it: maps, filters, a normalization,
  /// or several recipes.
  bool is_mapped = false;
};

/// A file of consecutive records.
struct StoredFile {
  std::string name;          ///< path of the file
  std::int64_t records = 0;  ///< number of records in the file
  std::int64_t bytes = 0;    ///< size on disk
};

/// Records in a fixed order, each readable by its id. Implementations read files or memory, or
/// generate samples.
class RecordSource {
 public:
  virtual ~RecordSource() = default;
  virtual const SampleSpec& spec() const = 0;  ///< shape and labels of all samples
  /// Number of records; ids are 0 .. size()-1.
  virtual std::int64_t size() const = 0;
  /// Whether the records are uint8 images, so that read() supports pixels and an ImageStep.
  virtual bool has_images() const { return false; }
  /// Whether these images are JPEG or PNG files, which may have any size.
  virtual bool has_encoded_images() const { return false; }
  /// Normalization that converts its pixels to features, in addition to value / 255. Features are
  /// already normalized.
  virtual ChannelNormalization normalization() const { return {}; }
  /// Decodes record `record_id` into `sample`, whose spans have the spec's sizes. Thread-safe.
  /// Throws Error (data) with file, record, byte offset and kind of damage; also for a label
  /// outside 0 .. classes-1.
  virtual void read(std::int64_t record_id, Sample& sample) const = 0;
  /// Class names by class number; empty if unknown.
  virtual std::vector<std::string> class_names() const { return {}; }
  /// Whether the number of classes is only what the labels, or the caller, say: another data set of
  /// the same classes may have more.
  virtual bool counts_classes() const { return false; }
  /// Feature names by index, such as the columns of a table; a column without a name has its
  /// number, from 1. Empty if unknown.
  virtual std::vector<std::string> feature_names() const { return {}; }
  /// The same for targets.
  virtual std::vector<std::string> target_names() const { return {}; }
  /// The meaning of a table's columns; null for other data.
  virtual std::shared_ptr<const TableSchema> table() const { return nullptr; }
  /// The files that hold the records, in id order; empty if records are not read from files on
  /// demand.
  virtual std::vector<StoredFile> files() const { return {}; }
  /// Announces that these records will be read soon. Thread-safe; does not block.
  virtual void will_need(Range /*record_ids*/) const {}
  /// Files that are used only up to a damage, if this was requested on opening.
  virtual std::vector<DamagedFile> damage() const { return {}; }
  /// Human-readable, including preparation(): "fashion-mnist train", "12 TFRecord files in data/".
  virtual std::string description() const = 0;
  /// The processing of the records, without their origin: ", images cifar10-train, cached in
  /// memory".
  virtual std::string preparation() const { return ""; }
  /// The processing of the records.
  virtual RecordChanges changes() const { return {}; }
};

}  // namespace lockstep::data
