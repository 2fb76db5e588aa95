#include "lockstep/model/precision.h"

#include <array>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::model {
namespace {

constexpr std::array<std::string_view, 3> kNames{"float32", "bfloat16", "float16"};

}  // namespace

Precision parse_precision(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) return static_cast<Precision>(i);
  throw Error(ErrorCategory::input, "precision", fmt::format("needed one of {}", list_names(kNames)),
              got_name(name, kNames));
}

std::string to_string(Precision precision) { return std::string(kNames[static_cast<std::size_t>(precision)]); }

}  // namespace lockstep::model
