// What one record holds, and what all records of a data set have in common.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/record/damaged_file.h"

namespace lockstep::data {

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

/// One decoded record, seen through the memory of the batch it becomes part of.
struct Sample {
  std::span<float> features;  ///< [shape...], row-major; uint8 images arrive as value / 255
  std::int32_t label = 0;     ///< where the data set has classes
  std::span<float> targets;   ///< where it has targets
  std::span<std::uint8_t> pixels =
      {};                       ///< [shape...]; in the place of the features, which are empty then, where asked for
  ImageStep* images = nullptr;  ///< who takes images; null: they become features or pixels as they are stored

  /// Takes an image of uint8.
  void set_image(std::span<const std::uint8_t> image);
};

/// What a map function may depend on, so that its result is the same on every rank and after a resume.
struct SampleKey {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
  std::int64_t record_id = 0;
};

/// Changes one sample in place. Called from several threads at once.
using SampleMap = std::function<void(Sample&, const SampleKey&)>;

/// Records in a fixed order, each readable by its id. Implementations read files, memory, or make samples up.
class RecordSource {
 public:
  virtual ~RecordSource() = default;
  virtual const SampleSpec& spec() const = 0;
  /// Number of records; ids are 0 .. size()-1.
  virtual std::int64_t size() const = 0;
  /// Whether the records are images of uint8, so that read() may be asked for pixels and given an ImageStep.
  virtual bool has_images() const { return false; }
  /// Whether those images are JPEG or PNG files, which may have any size.
  virtual bool has_encoded_images() const { return false; }
  /// Decodes record `record_id` into `sample`, whose spans have the spec's sizes. Thread-safe. Throws Error (data) with
  /// file, record, byte offset and kind of damage; also for a label outside 0 .. classes-1.
  virtual void read(std::int64_t record_id, Sample& sample) const = 0;
  /// The files that are used up to a damage only, where opening them so was asked for.
  virtual std::vector<DamagedFile> damage() const { return {}; }
  /// For people: "fashion-mnist train", "12 TFRecord files in data/".
  virtual std::string description() const = 0;
};

}  // namespace lockstep::data
