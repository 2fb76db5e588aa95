#include "lockstep/data/pipeline/sample_reader.h"

#include "lockstep/base/error.h"
#include "lockstep/base/pixels.h"

namespace lockstep::data {

template <typename Image>
void RecipeStep::take(const Image& image, Sample& sample) {
  if (sample.pixels.empty())
    transform_.apply(image, key_, sample.features, scratch_);
  else
    transform_.apply(image, key_, sample.pixels, scratch_);
}

void RecipeStep::take_stored(std::span<const std::uint8_t> pixels, Sample& sample) {
  LOCKSTEP_CHECK_OP(stored_.shape.size(), ==, 3U);
  take(view_of(pixels, static_cast<int>(stored_.shape[0]), static_cast<int>(stored_.shape[1]),
               static_cast<int>(stored_.shape[2])),
       sample);
}

void RecipeStep::take_encoded(std::span<const std::uint8_t> file, Sample& sample) { take(file, sample); }

namespace {

/// One per thread is enough if sources contain recipes themselves: the inner recipe is finished when the outer one
/// starts.
ImageScratch& scratch_of_this_thread() {
  thread_local ImageScratch scratch;
  return scratch;
}

}  // namespace

SampleReader::SampleReader(const Pipeline& pipeline) : pipeline_(pipeline) {
  if (pipeline.images) recipe_.emplace(*pipeline.images, pipeline.source->spec(), scratch_of_this_thread());
}

void SampleReader::read(const SampleKey& key, Sample& sample) {
  sample.seed = key.seed;
  sample.epoch = key.epoch;
  if (recipe_) {
    recipe_->set_key(key);
    sample.images = &*recipe_;
  }
  pipeline_.source->read(key.record_id, sample);
  sample.images = nullptr;  // it points into this reader
  for (const SampleMap& map : pipeline_.maps) map(sample, key);
  normalize(pipeline_.normalization, sample.features);
}

}  // namespace lockstep::data
