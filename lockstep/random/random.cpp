#include "lockstep/random/random.h"

#include <xxhash.h>

#include <Random123/philox.h>

namespace lockstep::inline v0 {

std::array<std::uint32_t, 4> Philox::block(std::uint64_t high, std::uint64_t low) const {
  r123::Philox4x32 generate;
  const r123::Philox4x32::ctr_type counter = {
      {static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(low >> 32),
       static_cast<std::uint32_t>(high), static_cast<std::uint32_t>(high >> 32)}};
  const r123::Philox4x32::key_type key = {
      {static_cast<std::uint32_t>(key_), static_cast<std::uint32_t>(key_ >> 32)}};
  const auto words = generate(counter, key);
  return {words[0], words[1], words[2], words[3]};
}

std::uint64_t random_key(std::uint64_t seed, std::string_view purpose, std::uint64_t index) {
  const std::uint64_t name = XXH3_64bits(purpose.data(), purpose.size());
  const std::array<std::uint64_t, 3> words = {seed, name, index};
  return XXH3_64bits(words.data(), sizeof(words));
}

}  // namespace lockstep::inline v0
