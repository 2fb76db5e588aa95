#include "data/pipeline/mixup_step.h"

#include "data/image/mixup.h"

namespace lockstep::data {

MixupStep::Mixed MixupStep::read(const SampleKey& key, Sample& sample, const Read& read) {
  if (!pipeline_.gives_pixels() || !sample.pixels.empty()) {
    return read_and_mix(key, sample, read);
  }
  own_pixels_.resize(sample.features.size());
  Sample own;
  own.pixels = own_pixels_;
  const Mixed mixed = read_and_mix(key, own, read);
  device::pixels_to_features(own_pixels_, pipeline_.pixel_normalization(), sample.features);
  sample.label = own.label;
  return mixed;
}

MixupStep::Mixed MixupStep::read_and_mix(const SampleKey& key, Sample& own, const Read& read) {
  Mixed mixed = {.record_id = read(key, own)};
  mixed.partner_label = own.label;
  const Mixup mixup = choose_mixup(key, pipeline_.source->size(), pipeline_.mixup_alpha);
  if (mixup.partner == key.record_id || mixup.weight == 1) return mixed;  // it stays as it is
  partner_pixels_.resize(own.pixels.size());
  partner_features_.resize(own.features.size());
  Sample partner;
  partner.pixels = partner_pixels_;
  partner.features = partner_features_;
  read({key.seed, key.epoch, mixup.partner}, partner);
  if (own.pixels.empty())
    mix(own.features, partner.features, mixup.weight);
  else
    mix(own.pixels, partner.pixels, mixup.weight);
  mixed.partner_label = partner.label;
  mixed.own_weight = mixup.weight;
  return mixed;
}

}  // namespace lockstep::data
