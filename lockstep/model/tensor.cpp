#include "lockstep/model/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <array>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::model {

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

namespace {

constexpr std::array<std::string_view, 3> kNames{"float32", "bfloat16", "float16"};

}  // namespace

Precision parse_precision(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) return static_cast<Precision>(i);
  throw Error(ErrorCategory::input, "precision", fmt::format("expected one of {}", list_names(kNames)),
              got_name(name, kNames));
}

std::string to_string(Precision precision) { return std::string(kNames[static_cast<std::size_t>(precision)]); }

void TensorView::check_type(Precision wanted) const {
  if (type_ != wanted) LOCKSTEP_CHECK_OP(to_string(type_), ==, to_string(wanted));
}

}  // namespace lockstep::model
