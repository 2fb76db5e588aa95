// What can be wrong with a record file, and where.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/pixels.h"
#include "lockstep/data/order/batch_split.h"

namespace lockstep::data {

/// A place in a record file, for messages.
struct RecordLocation {
  std::string file;         ///< its path
  std::int64_t record = 0;  ///< number within the file, from 0
  std::int64_t offset = 0;  ///< byte at which the record's header starts; in a compressed file, of the inflated stream

  /// "train-00000-of-00002.tfrecord: record 500 at byte 418000"
  std::string text() const;
};

/// What is wrong with a record: cut off, or a checksum that does not agree, in its length or in its data.
enum class RecordFault { truncated_length, length_crc, truncated_data, data_crc };

/// "truncated length", "length CRC", "truncated data", "data CRC".
std::string_view fault_name(RecordFault fault);

/// A damaged record, as an Error (data).
class RecordError : public Error {
 public:
  /// `details` goes on where the kind ends: "24 bytes announced, 10 left".
  RecordError(RecordFault fault, RecordLocation location, std::string_view details);

  RecordFault fault() const noexcept { return fault_; }                  ///< what is wrong with the record
  const RecordLocation& location() const noexcept { return location_; }  ///< where it stands

 private:
  RecordFault fault_;
  RecordLocation location_;
};

/// Throws the RecordError for a file that ends `left` bytes after the start of a header, or inside the record's data.
[[noreturn]] void throw_truncated_length(RecordLocation location, std::uint64_t left);
/// Throws RecordError for a record of `announced` bytes of which `left` are there.
[[noreturn]] void throw_truncated_data(RecordLocation location, std::uint64_t announced, std::uint64_t left);
/// Throws RecordError for a length whose checksum does not agree.
[[noreturn]] void throw_length_crc(RecordLocation location);
/// Throws RecordError for data whose checksum does not agree.
[[noreturn]] void throw_data_crc(RecordLocation location);

// A record file that is used up to where it is damaged.

/// What is left out of a file, and why: behind a damaged length, or where the file ends within a record, nothing can be
/// found.
struct DamagedFile {
  RecordLocation location;  ///< of the first record that is left out: file, number, byte
  std::string kind;         ///< "length CRC", "truncated length", "truncated data", "gzip stream", "zlib stream"
  std::int64_t bytes_left_out = 0;  ///< from there to the end; in a packed file, of what could be inflated

  /// "a.tfrecord: record 7 at byte 5852: length CRC; the last 1204 bytes are left out"
  std::string text() const;
};

// What one record holds, and what all records of a data set have in common.

/// What every record of a data set looks like once it is decoded.
struct SampleSpec {
  std::vector<std::int64_t> shape;  ///< of the features, without the batch: [H, W, C] or [F]
  std::int64_t classes = 0;         ///< labels are 0 .. classes-1; 0 where the data set has targets instead of classes
  std::int64_t targets = 0;  ///< floats to be predicted per sample (regression); 0 where the data set has classes

  std::int64_t feature_count() const;  ///< product of `shape`
  bool operator==(const SampleSpec&) const = default;
};

struct Sample;

/// Makes a sample's features, or its pixels where those are asked for, of an image. Throws Error (data) for one that it
/// cannot take.
class ImageStep {
 public:
  virtual ~ImageStep() = default;
  /// Pixels [shape...] of the data set as it is stored.
  virtual void take_stored(std::span<const std::uint8_t> pixels, Sample& sample) = 0;
  /// A JPEG or PNG file.
  virtual void take_encoded(std::span<const std::uint8_t> file, Sample& sample) = 0;
};

/// Throws Error (input) unless there are extents, each above 0, whose product is at most 2^28.
void check_shape(std::span<const std::int64_t> shape, const std::string& where);

/// The same for its shape; also unless it has either classes or targets.
void check_spec(const SampleSpec& spec, const std::string& where);

/// One decoded record, seen through the memory of the batch it becomes part of.
struct Sample {
  std::span<float> features;  ///< [shape...], row-major; uint8 images arrive as value / 255
  std::int32_t label = 0;     ///< where the data set has classes
  std::span<float> targets;   ///< where it has targets
  std::span<std::uint8_t> pixels =
      {};                       ///< [shape...]; in the place of the features, which are empty then, where asked for
  ImageStep* images = nullptr;  ///< who takes images; null: they become features or pixels as they are stored
  std::uint64_t seed = 0;       ///< with the epoch, the pass that the record is read for: what sources that hold maps
  std::int64_t epoch = 0;       ///< or recipes make a SampleKey of, with the record id that they are asked for

  /// Takes an image of uint8; `normalization` is for features alone.
  void set_image(std::span<const std::uint8_t> image, const ChannelNormalization& normalization = {});
};

/// What a map function may depend on, so that its result is the same on every rank and after a resume.
struct SampleKey {
  std::uint64_t seed = 0;      ///< of the run
  std::int64_t epoch = 0;      ///< from 0
  std::int64_t record_id = 0;  ///< of the record, the same for every world size
};

/// Changes one sample in place. Called from several threads at once.
using SampleMap = std::function<void(Sample&, const SampleKey&)>;

/// Whether a sample is to be kept. Called from several threads at once.
using SamplePredicate = std::function<bool(const Sample&)>;

/// Writes all of record `record_id` into the sample's features, and its label or targets. Called from several threads
/// at once, in any order, perhaps more than once for a record: a pure function of the record id.
using SampleGenerator = std::function<void(std::int64_t record_id, Sample& sample)>;

/// A file of records that follow each other.
struct StoredFile {
  std::string name;          ///< its path
  std::int64_t records = 0;  ///< in it
  std::int64_t bytes = 0;    ///< on the disk
};

/// Records in a fixed order, each readable by its id. Implementations read files, memory, or make samples up.
class RecordSource {
 public:
  virtual ~RecordSource() = default;
  virtual const SampleSpec& spec() const = 0;  ///< what every sample looks like
  /// Number of records; ids are 0 .. size()-1.
  virtual std::int64_t size() const = 0;
  /// Whether the records are images of uint8, so that read() may be asked for pixels and given an ImageStep.
  virtual bool has_images() const { return false; }
  /// Whether those images are JPEG or PNG files, which may have any size.
  virtual bool has_encoded_images() const { return false; }
  /// What makes features of its pixels, beyond value / 255; features come normalized already.
  virtual ChannelNormalization normalization() const { return {}; }
  /// Decodes record `record_id` into `sample`, whose spans have the spec's sizes. Thread-safe. Throws Error (data) with
  /// file, record, byte offset and kind of damage; also for a label outside 0 .. classes-1.
  virtual void read(std::int64_t record_id, Sample& sample) const = 0;
  /// The classes by number; empty where their names are not known.
  virtual std::vector<std::string> class_names() const { return {}; }
  /// The files that hold the records, in the order of ids; none where records are not read from files as they are
  /// needed.
  virtual std::vector<StoredFile> files() const { return {}; }
  /// Says that these records will be read soon. Thread-safe; does not block.
  virtual void will_need(Range /*record_ids*/) const {}
  /// The files that are used up to a damage only, where opening them so was asked for.
  virtual std::vector<DamagedFile> damage() const { return {}; }
  /// For people: "fashion-mnist train", "12 TFRecord files in data/", with all that preparation() tells.
  virtual std::string description() const = 0;
  /// ", images cifar10-train, cached in memory": what is done to the records, without where they come from.
  virtual std::string preparation() const { return ""; }
};

}  // namespace lockstep::data
