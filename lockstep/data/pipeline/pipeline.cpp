#include "lockstep/data/pipeline/pipeline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <span>

#include "lockstep/base/error.h"
#include "lockstep/base/pixels.h"
#include "lockstep/base/trace/events.h"

namespace lockstep::inline v0::data {
namespace {

ChannelNormalization before_the_maps(const Pipeline& pipeline) {
  return pipeline.images ? pipeline.images->recipe().normalization
                         : pipeline.source->info().normalization;
}

}  // namespace

bool Pipeline::keeps_pixels() const {
  return source->info().has_images && maps.empty() &&
         (before_the_maps(*this).channels == 0 || normalization.channels == 0);
}

ChannelNormalization Pipeline::pixel_normalization() const {
  return normalization.channels > 0 ? normalization : before_the_maps(*this);
}

std::string Pipeline::preparation() const {
  std::string text;
  if (images) text += fmt::format(", images {}", images->recipe().description());
  if (!maps.empty()) text += fmt::format(", {} map{}", maps.size(), maps.size() == 1 ? "" : "s");
  const auto channels = static_cast<std::size_t>(normalization.channels);
  if (channels > 0)
    text += fmt::format(", normalized by ({}) and ({})",
                        fmt::join(std::span(normalization.mean).first(channels), ", "),
                        fmt::join(std::span(normalization.deviation).first(channels), ", "));
  if (mixup_alpha > 0) text += fmt::format(", mixup {}", mixup_alpha);
  return text;
}

RecordChanges Pipeline::changes() const {
  RecordChanges changes = source->info().changes;
  changes.is_mapped = changes.is_mapped || (images && changes.images) || !maps.empty() ||
                      normalization.channels > 0;
  if (images) changes.images = std::make_shared<const ImageRecipe>(images->recipe());
  return changes;
}

void SampleReader::apply_recipe(const SampleKey& key, const StoredImage& image,
                                const Sample& sample) const {
  if (image.is_encoded) return pipeline_.images->apply(image.bytes, key, sample);
  const std::vector<std::int64_t>& shape = pipeline_.source->spec().shape();
  LOCKSTEP_CHECK_OP(shape.size(), ==, 3U);
  pipeline_.images->apply(view_of(image.bytes, static_cast<int>(shape[0]),
                                  static_cast<int>(shape[1]), static_cast<int>(shape[2])),
                          key, sample);
}

void SampleReader::begin_stage(const char* stage) {
  constexpr int kMaxTracedStages = 400;
  if (!trace::is_collecting() || pipeline_.is_plain() || traced_stages_ > kMaxTracedStages) return;
  trace::lap(++traced_stages_ > kMaxTracedStages ? "more samples" : stage);
}

void SampleReader::read(const SampleKey& key, Sample& sample) {
  sample.seed = key.seed;
  sample.epoch = key.epoch;
  begin_stage("read");
  if (pipeline_.images)
    read_with_image(*pipeline_.source, key.record_id, sample, image_,
                    [&](const StoredImage& image) {
                      begin_stage(image.is_encoded ? "decode" : "augment");
                      apply_recipe(key, image, sample);
                    });
  else
    pipeline_.source->read(key.record_id, sample);
  if (!pipeline_.maps.empty()) begin_stage("map");
  for (const SampleMap& map : pipeline_.maps) map(sample, key);
  if (pipeline_.normalization.channels > 0 || pipeline_.mixup_alpha > 0) begin_stage("batch");
  normalize(pipeline_.normalization, sample.features());
}

}  // namespace lockstep::inline v0::data
