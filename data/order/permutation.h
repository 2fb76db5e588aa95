// A pseudo-random permutation that needs no memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace lockstep::data {

/// A pseudo-random permutation of 0 .. size-1 that depends on (key, size) alone. A few words of memory whatever the
/// size; the image of any position can be asked for at once, by any thread.
///
/// A Feistel network (Luby and Rackoff, "How to construct pseudorandom permutations from pseudorandom functions", 1988)
/// permutes the smallest power of two that holds all positions; an image outside is permuted again until it falls
/// inside (cycle walking: Black and Rogaway, "Ciphers with arbitrary finite domains", 2002). That takes less than two
/// passes on average.
class Permutation {
 public:
  /// `size` >= 1.
  Permutation(std::uint64_t key, std::int64_t size);

  /// The image of `position`, 0 .. size-1.
  std::int64_t operator[](std::int64_t position) const;

 private:
  /// The smaller the halves, the less a round can mix; below 256 positions, where rounds cost nothing, all permutations
  /// must be likely.
  static constexpr int kRounds = 12;
  static constexpr int kRoundsOfFew = 48;
  static constexpr std::int64_t kFew = 256;

  std::uint64_t permute(std::uint64_t value) const;

  std::uint64_t size_;
  std::size_t rounds_;
  int low_bits_;  ///< of the value; the other half has as many, or one less
  std::uint64_t low_mask_;
  std::uint64_t high_mask_;
  std::array<std::uint64_t, kRoundsOfFew> round_keys_;
};

}  // namespace lockstep::data
