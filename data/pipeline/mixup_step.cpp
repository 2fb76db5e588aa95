#include "data/pipeline/mixup_step.h"

#include "data/image/mixup.h"

namespace lockstep::data {

MixupStep::Mixed MixupStep::read(const SampleKey& key, Sample& sample, const Read& read) {
  if (!pipeline_.gives_pixels() || !sample.pixels.empty()) {
    const std::int64_t record_id = read(key, sample);
    return std::tuple_cat(std::tuple(record_id), mix_in_partner(key, sample, read));
  }
  own_pixels_.resize(sample.features.size());
  Sample own;
  own.pixels = own_pixels_;
  const std::int64_t record_id = read(key, own);
  const auto label = mix_in_partner(key, own, read);
  device::pixels_to_features(own_pixels_, pipeline_.pixel_normalization(), sample.features);
  sample.label = own.label;
  return std::tuple_cat(std::tuple(record_id), label);
}

std::pair<std::int32_t, float> MixupStep::mix_in_partner(const SampleKey& key, Sample& own, const Read& read) {
  const Mixup mixup = choose_mixup(key, pipeline_.source->size(), pipeline_.mixup_alpha);
  if (mixup.partner == key.record_id || mixup.weight == 1) return {own.label, 1.0f};  // it stays as it is
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
  return {partner.label, mixup.weight};
}

}  // namespace lockstep::data
