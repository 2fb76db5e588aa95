// Images for `lockstep generate`, prepared as in the training of the model.
#pragma once

#include <string>
#include <vector>

#include "apps/lockstep/model_source.h"
#include "lockstep/model/tensor/tensor.h"

namespace lockstep::inline v0::apps {

/// The image in `file`, JPEG or PNG, as features of `shape` [H, W, C], prepared as the test
/// images of `source`. Throws Error (data) for a file that is no such image.
std::vector<float> read_image(const std::string& file, const ModelSource& source,
                              const model::Shape& shape);

}  // namespace lockstep::inline v0::apps
