#include "data/pipeline/sample_reader.h"

#include "device/pixels.h"

namespace lockstep::data {
namespace {

/// One for a thread is enough where sources hold recipes themselves: theirs are done when an outer one begins.
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
  sample.images = nullptr;  // it is this reader's
  for (const SampleMap& map : pipeline_.maps) map(sample, key);
  device::normalize(pipeline_.normalization, sample.features);
}

}  // namespace lockstep::data
