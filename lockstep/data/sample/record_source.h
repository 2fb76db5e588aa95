// The interface of all record sources, and the facts about a source.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/pixels.h"
#include "lockstep/data/order/batch_plan.h"
#include "lockstep/data/order/record_split.h"
#include "lockstep/data/record/record_error.h"
#include "lockstep/data/sample/sample.h"
#include "lockstep/data/sample/sample_spec.h"

namespace lockstep::inline v0::data {

struct ImageRecipe;
struct TableSchema;
struct TextSchema;

/// What was done to records, for a later evaluation of the model that was trained on them.
struct RecordChanges {
  std::shared_ptr<const ImageRecipe> images = {};  ///< the recipe; null: none
  /// Whether only the program that built the data set can repeat the changes: maps, filters, a
  /// normalization, or several recipes.
  bool is_mapped = false;
};

/// The facts about a source, none of which changes while it exists.
struct SourceInfo {
  SampleSpec spec = {};   ///< the tensors of all samples
  std::int64_t size = 0;  ///< number of records, whose ids are 0 .. size - 1
  /// Human-readable, including `preparation`: "fashion-mnist train", "12 TFRecord files in data/".
  std::string description = {};
  /// The processing of the records, without their origin: ", images cifar10-train, cached in
  /// memory".
  std::string preparation = {};
  RecordChanges changes = {};  ///< the processing of the records
  /// Whether the first input is a uint8 image, so that read() supports pixels and a StoredImage.
  bool has_images = false;
  /// Whether these images are JPEG or PNG files, which may have any size.
  bool has_encoded_images = false;
  /// Converts the pixels to features, in addition to value / 255. Features are already normalized.
  ChannelNormalization normalization = {};
  std::vector<std::string> class_names = {};  ///< by class number; empty if unknown
  /// Whether the number of classes comes only from the labels or the caller: another data set of
  /// the same classes may have more.
  bool counts_classes = false;
  /// Names of the elements of the first input by index, such as the columns of a table; a column
  /// without a name has its number, from 1. For windows [T, F], those of one row. Empty if unknown.
  std::vector<std::string> feature_names = {};
  std::vector<std::string> target_names = {};     ///< `feature_names` of the first target
  std::shared_ptr<const TableSchema> table = {};  ///< meaning of a table's columns, or null
  /// The tokenizer of a text, and how the text is cut into samples; null for other data.
  std::shared_ptr<const TextSchema> text = {};
  /// The split of the data set of which this source is one part; null: it is whole.
  std::shared_ptr<const SplitInfo> split = {};
  /// The files that hold the records, in id order; empty if records are not read from files on
  /// demand.
  std::vector<StoredFile> files = {};
  /// Files that are used only up to their first damage, if this was requested on opening.
  std::vector<DamagedFile> damage = {};
  /// Shows whether two ranks have the same records under the same ids: a hash of the names of files
  /// that ranks find on their own. 0: nothing to compare.
  std::uint64_t identity = 0;
};

/// Records in a fixed order, each readable by its id. Implementations read files or memory, or
/// generate samples.
class RecordSource {
 public:
  virtual ~RecordSource() = default;

  const SourceInfo& info() const { return info_; }       ///< valid as long as the source
  const SampleSpec& spec() const { return info_.spec; }  ///< the tensors of all samples
  std::int64_t size() const { return info_.size; }       ///< number of records

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
  /// Announces that these records will be read soon. Thread-safe; does not block.
  virtual void will_need(Range /*record_ids*/) const {}
  /// Announces that this thread reads this record a few records later: if it is in memory, it is
  /// loaded into the processor's caches. Thread-safe; without system calls.
  virtual void prefetch(std::int64_t /*record_id*/) const {}

 protected:
  explicit RecordSource(SourceInfo info = {}) : info_(std::move(info)) {}  ///< with these facts

  SourceInfo info_;  ///< complete when the constructor of the derived class returns
};

/// Reads a record, with its first input as stored into `image`.
void read_stored(const RecordSource& source, std::int64_t record_id, Sample& sample,
                 StoredImage& image);

/// Reads a record and calls use(image) with its first input as stored. An Error of `use` is
/// rethrown with the file and the record of the image.
template <typename Use>
void read_with_image(const RecordSource& source, std::int64_t record_id, Sample& sample,
                     StoredImage& image, Use use) {
  const std::uint64_t seed = sample.seed;
  const std::int64_t epoch = sample.epoch;
  const auto is_kept = [&] { return image.source == nullptr || image.source->keeps_image(image); };
  do {
    sample.seed = seed;
    sample.epoch = epoch;
    read_stored(source, record_id, sample, image);
    try {
      use(image);
    } catch (const Error& error) {
      if (!is_kept()) continue;
      if (image.source != nullptr) image.source->fail_image(image.record_id, error);
      throw;
    }
  } while (!is_kept());
}

/// For descriptions of data whose labels are numbers: ", labels from 1 to 3 (4 classes, none of
/// class 0)". Empty if `lowest` is 0.
std::string text_of_labels(std::int64_t lowest, std::int64_t highest);

/// The first index at which two lists of SourceInfo::feature_names, or of target_names, have
/// different names; nullopt if there is none. A number, of a column without a name, matches any
/// name.
std::optional<std::size_t> different_feature(const std::vector<std::string>& names,
                                             const std::vector<std::string>& others);

}  // namespace lockstep::inline v0::data
