#include "data/image/sample_random.h"

namespace lockstep::data {

SampleRandom::SampleRandom(std::string_view purpose, const SampleKey& key)
    : generator_(device::random_key(key.seed, purpose, static_cast<std::uint64_t>(key.epoch))),
      record_id_(static_cast<std::uint64_t>(key.record_id)) {}

double SampleRandom::between(double low, double high) { return low + (high - low) * unit(); }

std::uint32_t SampleRandom::word() {
  if (used_ == words_.size()) {
    words_ = generator_.block(record_id_, blocks_++);
    used_ = 0;
  }
  return words_[used_++];
}

}  // namespace lockstep::data
