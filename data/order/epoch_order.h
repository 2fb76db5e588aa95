// The order in which an epoch visits the records.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace lockstep::data {

/// A pseudo-random permutation of 0 .. records-1 that depends on (seed, epoch, records) alone. A few words of memory
/// whatever the number of records; any position can be asked for at once, by any thread, so the position in the data is
/// the step number.
///
/// A Feistel network (Luby and Rackoff, "How to construct pseudorandom permutations from pseudorandom functions", 1988)
/// permutes the smallest power of two that holds all records; an image outside is permuted again until it falls inside
/// (cycle walking: Black and Rogaway, "Ciphers with arbitrary finite domains", 2002). That takes less than two passes
/// on average.
class EpochOrder {
 public:
  /// `records` >= 1.
  EpochOrder(std::uint64_t seed, std::int64_t epoch, std::int64_t records);

  /// The record id at `position`, 0 .. records-1.
  std::int64_t operator[](std::int64_t position) const;

 private:
  /// The smaller the halves, the less a round can mix; below 256 records, where rounds cost nothing, all permutations
  /// must be likely.
  static constexpr int kRounds = 12;
  static constexpr int kRoundsOfFew = 48;
  static constexpr std::int64_t kFew = 256;

  std::uint64_t permute(std::uint64_t value) const;

  std::uint64_t records_;
  std::size_t rounds_;
  int low_bits_;  ///< of the value; the other half has as many, or one less
  std::uint64_t low_mask_;
  std::uint64_t high_mask_;
  std::array<std::uint64_t, kRoundsOfFew> round_keys_;
};

}  // namespace lockstep::data
