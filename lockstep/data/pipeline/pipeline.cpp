#include "lockstep/data/pipeline/pipeline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <span>

namespace lockstep::data {
namespace {

ChannelNormalization before_the_maps(const Pipeline& pipeline) {
  return pipeline.images ? pipeline.images->recipe().normalization : pipeline.source->normalization();
}

}  // namespace

bool Pipeline::gives_pixels() const {
  return source->has_images() && maps.empty() && (before_the_maps(*this).channels == 0 || normalization.channels == 0);
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
    text += fmt::format(", normalized by ({}) and ({})", fmt::join(std::span(normalization.mean).first(channels), ", "),
                        fmt::join(std::span(normalization.deviation).first(channels), ", "));
  if (mixup_alpha > 0) text += fmt::format(", mixup {}", mixup_alpha);
  return text;
}

}  // namespace lockstep::data
