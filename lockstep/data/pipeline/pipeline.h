// The steps between records and batches, and reading single samples with them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/pixels.h"
#include "lockstep/data/image/transform.h"
#include "lockstep/data/order/batch_plan.h"
#include "lockstep/data/sample/record_source.h"
#include "lockstep/data/sample/sample.h"

namespace lockstep::inline v0::data {

/// The processing of a source's records. A value; the source is shared.
struct Pipeline {
  std::shared_ptr<const RecordSource> source;
  /// The samples' spec: the source's, or the output of the image recipe.
  SampleSpec spec;
  std::shared_ptr<const ImageTransform> images;  ///< null: images are used as stored
  std::vector<SampleMap> maps;                   ///< applied after `images`, in this order
  ChannelNormalization normalization = {};       ///< applied after the maps
  double mixup_alpha = 0;                        ///< applied last; 0: disabled
  bool shuffled = false;
  std::int64_t global_batch = 0;
  ShardPolicy policy = ShardPolicy::automatic;
  /// Maximum number of replaced bad records; nullopt: the first is an error.
  std::optional<std::int64_t> bad_records;
  int prefetch = 0;  ///< prefetched global batches; 0: as in the stream options

  /// Whether samples can stay bytes until they are on the model's device, which then normalizes
  /// them.
  bool keeps_pixels() const;
  /// The normalization that the device applies.
  ChannelNormalization pixel_normalization() const;

  /// Whether samples are the unchanged records of the source.
  bool is_plain() const { return !images && maps.empty() && normalization.channels == 0; }
  /// The processing of the source's records: ", images cifar10-train, 2 maps, normalized ...".
  std::string preparation() const;
  /// `preparation()` and the changes of the source.
  RecordChanges changes() const;
};

/// A record with all processing of a pipeline. Not thread-safe.
class SampleReader {
 public:
  /// `pipeline` must outlive this object.
  explicit SampleReader(const Pipeline& pipeline) : pipeline_(pipeline) {}
  SampleReader(const SampleReader&) = delete;
  SampleReader& operator=(const SampleReader&) = delete;

  /// Reads the source's record `key.record_id` into `sample`, whose spans have the sizes of the
  /// pipeline's spec, and applies the pipeline to it. Throws the errors of the source and the maps.
  void read(const SampleKey& key, Sample& sample);

 private:
  void apply_recipe(const SampleKey& key, const StoredImage& image, const Sample& sample) const;
  /// Records in an active trace that the processing of a sample enters `stage`. Skips samples that
  /// are only copied, and most of a large batch: their events would take longer than the work, or
  /// exceed the trace's capacity.
  void begin_stage(const char* stage);

  const Pipeline& pipeline_;
  StoredImage image_;
  int traced_stages_ = 0;
};

}  // namespace lockstep::inline v0::data
