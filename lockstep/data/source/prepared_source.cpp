#include "lockstep/data/source/prepared_source.h"

#include <utility>
#include <vector>

#include "lockstep/data/pipeline/sample_reader.h"

namespace lockstep::data {

PreparedSource::PreparedSource(Pipeline pipeline) : pipeline_(std::move(pipeline)) {
  if (pipeline_.gives_pixels()) normalization_ = pipeline_.pixel_normalization();
}

void PreparedSource::read(std::int64_t record_id, Sample& sample) const {
  SampleReader reader(pipeline_);
  const SampleKey key = {sample.seed, sample.epoch, record_id};
  if (sample.images == nullptr) return reader.read(key, sample);
  // Another recipe follows, and takes the pixels of this one.
  std::vector<std::uint8_t> image(static_cast<std::size_t>(spec().feature_count()));
  Sample inner;
  inner.targets = sample.targets;
  inner.pixels = image;
  reader.read(key, inner);
  sample.label = inner.label;
  sample.images->take_stored(image, sample);
}

}  // namespace lockstep::data
