// Samples, their sources, and damage of record files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/base/element_type.h"
#include "lockstep/base/error.h"
#include "lockstep/base/pixels.h"
#include "lockstep/data/order/batch_plan.h"
#include "lockstep/data/sample/sample_spec.h"

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
/// Throws the RecordError for a length field that does not match its checksum. `bytes` is what the
/// record begins with; the first kFileKindBytes of a file may show that it has another format.
[[noreturn]] void throw_length_crc(RecordLocation location, std::string_view bytes);
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

/// For descriptions of data whose labels are numbers: ", labels from 1 to 3 (4 classes, none of
/// class 0)". Empty if `lowest` is 0.
std::string text_of_labels(std::int64_t lowest, std::int64_t highest);

/// The first index at which two lists of RecordSource::feature_names(), or of target_names(), have
/// different names; nullopt if there is none. A number, of a column without a name, matches any
/// name.
std::optional<std::size_t> different_feature(const std::vector<std::string>& names,
                                             const std::vector<std::string>& others);

/// Throws Error (input) for the access to the tensor `name` of `type` as `requested`.
[[noreturn]] void throw_wrong_type(std::string_view name, ElementType requested, ElementType type);
/// Throws Error (input) that lists the `known` names of `what`, such as "inputs".
[[noreturn]] void throw_no_tensor(std::string_view what, std::string_view name,
                                  const std::vector<std::string_view>& known);

/// The one of `tensors` that is called `name`; throws throw_no_tensor() if there is none.
template <typename Tensor>
Tensor& find_tensor(std::span<Tensor> tensors, std::string_view what, std::string_view name) {
  std::vector<std::string_view> known;
  for (Tensor& tensor : tensors)
    if (tensor.name == name) return tensor;
  for (const Tensor& tensor : tensors) known.push_back(tensor.name);
  throw_no_tensor(what, name, known);
}

struct Sample;
class RecordSource;

/// The first input of a record as it is stored, for a caller of RecordSource::read() that decodes
/// it itself.
struct StoredImage {
  std::span<const std::uint8_t> bytes = {};  ///< valid until this thread reads another record
  bool is_encoded = false;                   ///< a JPEG or PNG file; otherwise pixels [shape...]
  std::string memory = {};                   ///< of `bytes`, if the source does not hold them
  const RecordSource* source = nullptr;      ///< knows the file of the image; null: nothing to add
  std::int64_t record_id = 0;                ///< in `source`
  bool is_mapped = false;                    ///< the bytes can be lost: RecordSource::keeps_image()

  /// `count` pixels in `memory`, to be written.
  std::span<std::uint8_t> allocate(std::size_t count);
  /// Reads a record, with its first input into this object.
  void read(const RecordSource& from, std::int64_t id, Sample& sample);
};

/// The bytes of what follows a short sample in numbers that are padded: zeros, or kMasked.
constexpr std::byte padding_of(bool masked) {
  static_assert(kMasked == -1);  // two's complement: all bytes are 255
  return masked ? std::byte{255} : std::byte{0};
}

/// The values of one sample of a ragged tensor, before its batch is padded.
struct RaggedRow {
  std::vector<std::byte> bytes = {};      ///< of numbers
  std::vector<std::string> strings = {};  ///< of ElementType::bytes

  bool operator==(const RaggedRow&) const = default;
};

/// One tensor of a sample: a view of the memory of its batch.
struct TensorView {
  std::string_view name;                    ///< as in the spec
  ElementType type = ElementType::float32;  ///< uint8 for images whose pixels are requested
  std::byte* data = nullptr;                ///< of the first element
  std::size_t elements = 0;                 ///< number of elements
  std::size_t unit = 0;      ///< of a ragged tensor: elements per step of its first extent
  RaggedRow* row = nullptr;  ///< of a ragged tensor: its memory

  /// Gives a ragged tensor this first extent; its elements are then to be written. Throws Error
  /// (input) for any other tensor, Error (data) for more than kMaxElements elements.
  void set_length(std::size_t length);
  /// Views a row of a ragged tensor.
  void attach(RaggedRow& to);

  /// The elements, row-major; std::string for ElementType::bytes. Throws Error (input) for another
  /// type than that of the tensor.
  template <typename T>
  std::span<T> as() const {
    if (type != element_type_of<T>()) throw_wrong_type(name, element_type_of<T>(), type);
    return elements_as<T>();
  }

 private:
  friend struct Sample;
  template <typename T>
  std::span<T> elements_as() const {
    return {reinterpret_cast<T*>(data), elements};
  }
};

/// One decoded record, as views of the memory of its batch (Batch::sample). Images are float32,
/// value / 255, or uint8 if pixels are requested.
struct Sample {
  std::vector<TensorView> inputs = {};   ///< as in the spec
  std::vector<TensorView> targets = {};  ///< as in the spec
  float weight = 1;                      ///< in the loss, if the spec is weighted
  StoredImage* image = nullptr;  ///< receives the first input as stored; null: it is decoded
  std::uint64_t seed = 0;        ///< seed and epoch of the pass; sources with maps or recipes
  std::int64_t epoch = 0;        ///< build a SampleKey from them and the record id

  /// The input called `name`. Throws Error (input) that lists the names if there is none.
  const TensorView& input(std::string_view name) const;
  TensorView& input(std::string_view name);               ///< the same
  const TensorView& target(std::string_view name) const;  ///< likewise
  TensorView& target(std::string_view name);              ///< the same

  std::span<float> features() const { return first_of<float>(inputs); }  ///< of the first input
  /// Of the first input if it is uint8; features() is then empty.
  std::span<std::uint8_t> pixels() const { return first_of<std::uint8_t>(inputs); }
  std::span<float> values() const { return first_of<float>(targets); }  ///< of the first target
  /// The class number in the first target. Throws Error (input) if it is not one class number.
  std::int32_t& label() const {
    if (targets.empty() || targets.front().type != ElementType::int32 ||
        targets.front().elements != 1)
      throw_no_label();
    return *reinterpret_cast<std::int32_t*>(targets.front().data);
  }

  /// Stores a uint8 image; `normalization` applies to features only.
  void set_image(std::span<const std::uint8_t> pixels_of_image,
                 const ChannelNormalization& normalization = {});
  /// The same without a copy for a StoredImage: the image must stay until this thread reads another
  /// record.
  void set_image_view(std::span<const std::uint8_t> pixels_of_image,
                      const ChannelNormalization& normalization = {});

 private:
  template <typename T>
  static std::span<T> first_of(const std::vector<TensorView>& tensors) {
    if (tensors.empty() || tensors.front().type != element_type_of<T>()) return {};
    return tensors.front().elements_as<T>();
  }
  [[noreturn]] static void throw_no_label();
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

/// Writes the whole record `record_id` to the sample's inputs and targets. Called from several
/// threads concurrently, in any order, possibly more than once per record. It must be a pure
/// function of the record id.
using SampleGenerator = std::function<void(std::int64_t record_id, Sample& sample)>;

/// The features of all records, consecutive: floats or uint8 images.
using MemoryFeatures = std::variant<std::vector<float>, std::vector<std::uint8_t>>;
/// Class numbers [N], or targets [N, targets].
using MemoryLabels = std::variant<std::vector<std::int32_t>, std::vector<float>>;
/// The values of one tensor of all records, consecutive.
using MemoryArray =
    std::variant<std::vector<float>, std::vector<std::uint8_t>, std::vector<std::int32_t>,
                 std::vector<std::int64_t>, std::vector<std::string>>;
/// One tensor of all records: [N, shape...]; of a ragged tensor also the length of each, [N].
struct MemoryTensor {
  /// The two members below.
  template <typename T>
  MemoryTensor(std::vector<T> all, std::vector<std::int32_t> length_of_each = {})
      : values(std::move(all)), lengths(std::move(length_of_each)) {}

  MemoryArray values;                 ///< [N, shape...], without padding
  std::vector<std::int32_t> lengths;  ///< first extents of a ragged tensor
};

struct ImageRecipe;
struct TableSchema;
struct TextSchema;

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
  virtual const SampleSpec& spec() const = 0;  ///< the tensors of all samples
  /// Number of records; ids are 0 .. size()-1.
  virtual std::int64_t size() const = 0;
  /// Whether the first input is a uint8 image, so that read() supports pixels and a StoredImage.
  virtual bool has_images() const { return false; }
  /// Whether these images are JPEG or PNG files, which may have any size.
  virtual bool has_encoded_images() const { return false; }
  /// Normalization that converts its pixels to features, in addition to value / 255. Features are
  /// already normalized.
  virtual ChannelNormalization normalization() const { return {}; }
  /// Decodes record `record_id` into `sample`, whose views have the spec's sizes; those of ragged
  /// tensors get their length here. Thread-safe.
  /// Throws Error (data) with file, record, byte offset and kind of damage; also for a label
  /// outside 0 .. classes-1.
  virtual void read(std::int64_t record_id, Sample& sample) const = 0;
  /// Whether the bytes of an image of this source are still those that read() left: the disk of a
  /// mapped file may fail while they are decoded.
  virtual bool keeps_image(const StoredImage& /*image*/) const { return true; }
  /// Throws `error`, which is about the image of a record, with its file and record if known.
  [[noreturn]] virtual void fail_image(std::int64_t record_id, const Error& error) const;
  /// Class names by class number; empty if unknown.
  virtual std::vector<std::string> class_names() const { return {}; }
  /// Whether the number of classes is only what the labels, or the caller, say: another data set of
  /// the same classes may have more.
  virtual bool counts_classes() const { return false; }
  /// Names of the elements of the first input by index, such as the columns of a table; a column
  /// without a name has its number, from 1. Of windows [T, F], those of one row. Empty if unknown.
  virtual std::vector<std::string> feature_names() const { return {}; }
  /// The same for the first target.
  virtual std::vector<std::string> target_names() const { return {}; }
  /// The meaning of a table's columns; null for other data.
  virtual std::shared_ptr<const TableSchema> table() const { return nullptr; }
  /// The tokenizer of a text, and how the text is cut into samples; null for other data.
  virtual std::shared_ptr<const TextSchema> text() const { return nullptr; }
  /// The files that hold the records, in id order; empty if records are not read from files on
  /// demand.
  virtual std::vector<StoredFile> files() const { return {}; }
  /// Announces that these records will be read soon. Thread-safe; does not block.
  virtual void will_need(Range /*record_ids*/) const {}
  /// Announces that this thread reads this record a few records later: one that is in memory is
  /// brought into the processor's caches. Thread-safe; without system calls.
  virtual void prefetch(std::int64_t /*record_id*/) const {}
  /// Files that are used only up to a damage, if this was requested on opening.
  virtual std::vector<DamagedFile> damage() const { return {}; }
  /// Tells whether two ranks have the same records under the same ids: a hash of the names of files
  /// that ranks find on their own. 0: nothing to compare.
  virtual std::uint64_t identity() const { return 0; }
  /// Human-readable, including preparation(): "fashion-mnist train", "12 TFRecord files in data/".
  virtual std::string description() const = 0;
  /// The processing of the records, without their origin: ", images cifar10-train, cached in
  /// memory".
  virtual std::string preparation() const { return ""; }
  /// The processing of the records.
  virtual RecordChanges changes() const { return {}; }
};

/// Reads a record and calls use(image) with its first input as stored. An Error of `use` gets the
/// file and the record of the image.
template <typename Use>
void read_with_image(const RecordSource& source, std::int64_t record_id, Sample& sample,
                     StoredImage& image, Use use) {
  const std::uint64_t seed = sample.seed;
  const std::int64_t epoch = sample.epoch;
  const auto is_kept = [&] { return image.source == nullptr || image.source->keeps_image(image); };
  do {
    sample.seed = seed;
    sample.epoch = epoch;
    image.read(source, record_id, sample);
    try {
      use(image);
    } catch (const Error& error) {
      if (!is_kept()) continue;
      if (image.source != nullptr) image.source->fail_image(image.record_id, error);
      throw;
    }
  } while (!is_kept());
}

}  // namespace lockstep::data
