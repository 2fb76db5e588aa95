#include "data/pipeline/pipeline.h"

#include <algorithm>

namespace lockstep::data {

device::ChannelNormalization Pipeline::pixel_normalization() const {
  if (!images) return normalization;
  const ImageRecipe& recipe = images->recipe();
  device::ChannelNormalization of_recipe{.channels = recipe.channels};
  std::ranges::copy(recipe.normalization.mean, of_recipe.mean.begin());
  std::ranges::copy(recipe.normalization.deviation, of_recipe.deviation.begin());
  return of_recipe;
}

}  // namespace lockstep::data
