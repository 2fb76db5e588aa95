#include "data/sample.h"

namespace lockstep::data {

std::int64_t SampleSpec::feature_count() const {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

}  // namespace lockstep::data
