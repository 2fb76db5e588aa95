#include "lockstep/model/shape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lockstep/base/error.h"

namespace lockstep::model {

// Where 63 bits do not hold it the shape comes from a hostile description of a model.
std::int64_t element_count(const Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape)
    if (__builtin_mul_overflow(count, extent, &count))
      throw Error(ErrorCategory::input, "shape", "expected a shape of less than 2^63 elements",
                  "got " + to_string(shape));
  return count;
}

std::string to_string(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

}  // namespace lockstep::model
