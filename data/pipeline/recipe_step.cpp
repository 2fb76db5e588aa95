#include "data/pipeline/recipe_step.h"

#include "device/error.h"

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

}  // namespace lockstep::data
