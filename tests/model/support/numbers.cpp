#include "tests/model/support/numbers.h"

#include "lockstep/random/random.h"

namespace lockstep::inline v0::model {

std::vector<float> numbers(std::size_t count, std::uint64_t seed) {
  const Philox generator(random_key(seed, "numbers"));
  std::vector<float> result(count);
  for (std::size_t i = 0; i < count; ++i)
    result[i] = 2 * to_unit_float(generator.block(0, i)[0]) - 1;
  return result;
}

std::vector<std::int32_t> labels(std::size_t count, std::int32_t classes, std::uint64_t seed) {
  const Philox generator(random_key(seed, "labels"));
  std::vector<std::int32_t> result(count);
  for (std::size_t i = 0; i < count; ++i)
    result[i] =
        static_cast<std::int32_t>(generator.block(0, i)[0] % static_cast<std::uint32_t>(classes));
  return result;
}

}  // namespace lockstep::inline v0::model
