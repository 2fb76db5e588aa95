// Extents of an array, without the batch: [H, W, C] of an image, [F] of a vector.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::model {

using Shape = std::vector<std::int64_t>;  ///< Extents of an array, outermost first; images are [H, W, C].

/// Product of the extents; 1 for an empty shape (a scalar).
std::int64_t element_count(const Shape& shape);

/// "[28, 28, 1]"
std::string to_string(const Shape& shape);

}  // namespace lockstep::model
