#include "data/image/normalization.h"

#include "device/error.h"

namespace lockstep::data {

Normalizer::Normalizer(const device::ChannelNormalization& normalization, int channels) : channels_(channels) {
  LOCKSTEP_CHECK(channels == 1 || channels == 3);
  const device::ChannelNormalization none;
  const device::ChannelNormalization& effective = normalization.channels == 0 ? none : normalization;
  for (std::size_t c = 0; c < static_cast<std::size_t>(channels); ++c) {
    LOCKSTEP_CHECK_OP(effective.deviation[c], >, 0.0f);
    for (std::size_t value = 0; value < table_[c].size(); ++value)
      table_[c][value] =
          device::normalized(static_cast<float>(value) / 255.0f, effective.mean[c], effective.deviation[c]);
  }
}

void Normalizer::normalize(std::span<const std::uint8_t> bytes, std::span<float> floats) const {
  LOCKSTEP_CHECK_OP(bytes.size(), ==, floats.size());
  const std::uint8_t* from = bytes.data();
  float* to = floats.data();
  const std::size_t count = bytes.size();
  if (channels_ == 1) {
    for (std::size_t i = 0; i < count; ++i) to[i] = table_[0][from[i]];
    return;
  }
  for (std::size_t i = 0; i + 2 < count; i += 3) {
    to[i] = table_[0][from[i]];
    to[i + 1] = table_[1][from[i + 1]];
    to[i + 2] = table_[2][from[i + 2]];
  }
}

}  // namespace lockstep::data
