#include "lockstep/model/tensor/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::model {

// A product that exceeds 63 bits comes from an invalid or malicious model description.
std::int64_t element_count(const Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape)
    if (__builtin_mul_overflow(count, extent, &count))
      throw Error(ErrorCategory::input, "shape", "expected a shape of less than 2^63 elements",
                  "got " + to_string(shape));
  return count;
}

std::string to_string(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string to_string(Precision precision) {
  return std::string(kNamesOf<Precision>.name(precision));
}

void TensorView::check_type(Precision wanted) const {
  if (type_ != wanted) LOCKSTEP_CHECK_OP(to_string(type_), ==, to_string(wanted));
}

}  // namespace lockstep::inline v0::model
